"""Importers beside the runtimes that models come from."""
