"""Fine-tuning on measured records, and code for all kinds of training."""
