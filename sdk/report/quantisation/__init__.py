"""What the quantisation of a model lost, in texts and charts."""
