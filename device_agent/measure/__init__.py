"""Times, energy and conditions of a measurement, and the process that reads the power sensors."""
