"""Stages without reductions."""
