"""The search for types of layers."""
