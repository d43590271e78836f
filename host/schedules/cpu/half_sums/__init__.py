"""Products whose sums are halves over blocks of the depth, and in single precision over the blocks."""
