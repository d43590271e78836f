"""Scatters on a CPU: elements written into a copy of a tensor."""
