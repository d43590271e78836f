"""Measuring programs on boards: jobs, the workers that take them, connections that break and come back."""
