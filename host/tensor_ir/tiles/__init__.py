"""Functions in LLVM's own language that compute in registers of matrices (AMX)."""
