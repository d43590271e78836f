"""Programs for CUDA GPUs: what can be known of them without a GPU."""
