"""The rule for stages without reductions on a CPU."""
