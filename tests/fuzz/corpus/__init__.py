"""Everything that was a fault once, as generators and small files: see docs/fuzzing.md."""
