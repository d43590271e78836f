"""The time of compiled kernels on processors that are not here, by a model that knows no schedules."""
