"""The engines of the benchmark of language models: the process of each, and the files that it reads."""
