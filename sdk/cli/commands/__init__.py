"""Commands that take a model or a bundle."""
