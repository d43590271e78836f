"""Checkpoints of Ultralytics: exported to ONNX by their own exporter, in a worker.

`checkpoint` is the parent's side, `child` what runs in the worker. A checkpoint is a pickle, whose code runs
as it is read: the worker reads it only if the kernel confines the worker in full.
"""

from __future__ import annotations
