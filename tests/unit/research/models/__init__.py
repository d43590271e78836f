"""Tests of the models that tests and benchmarks use."""
