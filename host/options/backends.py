"""What runs a bundle's model: the compiler's programs, or an engine."""

from __future__ import annotations

from typing import Literal, get_args

Backend = Literal[
    "tvm",
    "onnxruntime",
    "litert",
    "tensorrt",
    "tensorrt-fp16",
    "tensorrt-int8",
    "onnxruntime-cuda",
    "onnxruntime-tensorrt",
]
BACKENDS: tuple[Backend, ...] = get_args(Backend)
