"""Cold deployments: seconds, and memory of the whole process tree."""
