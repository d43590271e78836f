"""Tensor expressions of one fused function: the stage they are written on, and what writers share."""
