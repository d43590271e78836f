"""Attention as one kernel on tensor cores: scores stay in registers."""
