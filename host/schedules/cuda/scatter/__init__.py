"""Scatters on a GPU: elements written into a copy of a tensor."""
