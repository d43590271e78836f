"""What measuring kernels makes of whole models."""
