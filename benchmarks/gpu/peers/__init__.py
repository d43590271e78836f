"""Libraries that are measured beside ours.

Each has a module, which is imported by what needs it alone: a machine may lack the library.
"""

from __future__ import annotations

# Ways to run a model, by library.
TORCH_WAYS = ("graph", "reduce-overhead", "max-autotune")
ONNX_RUNTIME_WAYS = ("onnxruntime", "onnxruntime-graph")
# In the order in which they are measured: what takes longest to prepare is last.
WAYS = ("graph", "reduce-overhead", *ONNX_RUNTIME_WAYS, "max-autotune")
