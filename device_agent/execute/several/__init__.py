"""Several texts of one language model at once."""
