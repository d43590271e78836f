"""Measured programs of many tasks on one device, as data to learn from."""
