"""Families of programs for CPUs, a folder each, and what they share."""
