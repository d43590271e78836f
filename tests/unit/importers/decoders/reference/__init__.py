"""Tests of folders with packed weights."""
