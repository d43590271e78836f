"""What measured programs teach an estimate."""
