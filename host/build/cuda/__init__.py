"""Kernels and models for CUDA GPUs: NVRTC, cubins and the driver."""
