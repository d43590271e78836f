"""What ONNX Runtime's CUDA provider takes for the same models, whose weights and tensors are halves.

Inputs and outputs lie in the memory of the GPU, so that no copy is part of a latency.
"""

from __future__ import annotations

import lzma
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from benchmarks.gpu.figures import Item
from benchmarks.gpu.kit import ONNX_SUFFIX, Kit
from benchmarks.gpu.models import difference_of, golden, unpacked

_WARMUP, _LATENCIES = 5, 200
# Logged are errors alone: nodes that are placed on the CPU are warnings.
_ERRORS = 3
_PROVIDERS = {"cuda": "CUDAExecutionProvider", "cpu": "CPUExecutionProvider"}
_TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
}


class ProviderError(Exception):
    """ONNX Runtime does not run a model where it is asked to; the message says why."""


def model(kit: Kit, name: str, graph: bool, folder: Path, device: str = "cuda") -> Item:
    """One model of a kit at batch 1.

    Args:
        kit: with the model.
        name: of the model.
        graph: whether ONNX Runtime captures a CUDA graph. It refuses to where nodes are left to the CPU.
        folder: for the unpacked files.
        device: "cuda", or "cpu" in a test.

    Returns:
        `latency_s`, `samples`, `prepare_s`, and `difference` of the outputs from ours on the CPU in single
        precision, as a share of the largest number.

    Raises:
        ProviderError: the package has no such provider, or the provider does not start.
    """
    bundle = unpacked(kit, name, folder)
    path = folder / f"{name}.onnx"
    path.write_bytes(lzma.decompress((kit.folder / f"{name}{ONNX_SUFFIX}").read_bytes()))
    begin = time.monotonic()
    session = _session(path, graph, device)
    given, wanted = golden(bundle)
    binding = session.io_binding()
    for described, array in zip(session.get_inputs(), given, strict=True):
        placed = ort.OrtValue.ortvalue_from_numpy(array.astype(_type(described)), device, 0)
        binding.bind_ortvalue_input(described.name, placed)
    # A graph holds addresses, so outputs have theirs before the first run.
    outputs = [
        ort.OrtValue.ortvalue_from_shape_and_type(described.shape, _type(described), device, 0)
        for described in session.get_outputs()
    ]
    for described, placed in zip(session.get_outputs(), outputs, strict=True):
        binding.bind_ortvalue_output(described.name, placed)
    for _ in range(_WARMUP):
        session.run_with_iobinding(binding)
    prepared = time.monotonic() - begin
    latencies = []
    for _ in range(_LATENCIES):
        start = time.perf_counter()
        # Returns when the GPU has ended, since a session waits for its providers.
        session.run_with_iobinding(binding)
        latencies.append(time.perf_counter() - start)
    difference = difference_of([placed.numpy() for placed in outputs], wanted)
    return {
        "latency_s": statistics.median(latencies),
        "samples": latencies,
        "prepare_s": prepared,
        "difference": difference if np.isfinite(difference) else None,
        "version": ort.__version__,
    }


def _session(path: Path, graph: bool, device: str) -> Any:
    provider = _PROVIDERS[device]
    if provider not in ort.get_available_providers():
        raise ProviderError(f"onnxruntime {ort.__version__} has no {provider}; install onnxruntime-gpu")
    if device == "cuda" and hasattr(ort, "preload_dlls"):
        # The libraries of CUDA and cuDNN out of NVIDIA's packages, which torch needs too. Before version 1.21
        # they have to be on the loader's path.
        ort.preload_dlls()
    options = ort.SessionOptions()
    options.log_severity_level = _ERRORS
    own = {"enable_cuda_graph": "1"} if graph else {}
    session = ort.InferenceSession(
        path, options, providers=[(provider, own)] + ["CPUExecutionProvider"] * (device == "cuda")
    )
    # A provider that does not start leaves the model to the CPU.
    if session.get_providers()[0] != provider:
        raise ProviderError(f"onnxruntime {ort.__version__}: {provider} does not start")
    return session


def _type(described: Any) -> Any:
    """NumPy's type of an input or output.

    Raises:
        ProviderError: the models of a kit have none of that type.
    """
    found = _TYPES.get(described.type)
    if found is None:
        raise ProviderError(f"{described.name} is a {described.type}, which is not measured")
    return found
