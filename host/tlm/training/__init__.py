"""Fine-tuning on measured records, and what all training shares."""
