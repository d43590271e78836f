"""What measured programs teach the constants of the estimates."""
