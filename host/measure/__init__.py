"""Measuring on a device: kernels, models side by side."""
