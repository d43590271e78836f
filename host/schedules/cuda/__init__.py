"""Families of programs for NVIDIA GPUs, a folder each, and what they share."""
