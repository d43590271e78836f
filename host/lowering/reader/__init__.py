"""Reads relax into the graph: operators that have a specification by its reader, the rest as they are."""
