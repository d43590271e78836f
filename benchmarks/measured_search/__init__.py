"""Search with few measurements beside chance."""
