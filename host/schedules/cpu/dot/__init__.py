"""Products of bytes by the processor's dot product instruction."""
