"""Folders of transformers with encoders and vision models: exported with `torch.export` in a worker.

`archive` is the parent's side, `child` what runs in the worker. The class of the model is transformers' own,
weights are read from safetensors alone, and code that a folder brings is not run.
"""

from __future__ import annotations
