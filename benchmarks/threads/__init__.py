"""How well the threads of a processor share a model."""
