"""First programs of networks that taught nothing, end to end."""
