"""Evaluation of proposed programs against a search with hundreds of measurements: `sdk tlm evaluate`."""
