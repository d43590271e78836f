"""The rule for reductions on a CPU: tiles whose sums stay in vector registers."""
