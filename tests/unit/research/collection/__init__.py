"""Tests of the collection of measured programs."""
