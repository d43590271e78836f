"""Rewriting TensorIR: what schedules, builds and ranges of lengths share."""
