"""The memory of a language model: what there is for it, and in which pages it lies."""
