"""Whether the gate of fine-tuning takes what is faster and refuses what is not, on recorded times."""
