"""PyTorch: `torch.export` archives and modules, converted to relax."""
