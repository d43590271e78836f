"""Models of the zoo with static quantisation, as a user makes them with ONNX Runtime's tools."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx

from device_agent.contract.quiet import import_quietly

SAMPLES = 8


class RandomSamples:
    """Inputs of a model drawn from a seeded generator, in the form of a calibration data reader."""

    def __init__(self, model: onnx.ModelProto, seed: int = 0) -> None:
        draw = np.random.default_rng(seed)
        constants = {one.name for one in model.graph.initializer}
        inputs = [one for one in model.graph.input if one.name not in constants]
        self._samples = iter([{one.name: _drawn(one, draw) for one in inputs} for _ in range(SAMPLES)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        """The next sample, None behind the last one."""
        return next(self._samples, None)


def _drawn(value: onnx.ValueInfoProto, draw: np.random.Generator) -> np.ndarray:
    """Floats of a normal distribution, small indices, or ones in a mask."""
    kind = value.type.tensor_type
    shape = [one.dim_value or 1 for one in kind.shape.dim]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    if np.issubdtype(dtype, np.floating):
        return draw.normal(size=shape).astype(dtype)
    if "mask" in value.name:
        return np.ones(shape, dtype)
    return draw.integers(0, 2 if "type" in value.name else 100, shape).astype(dtype)


def quantised_file(source: Path, target: Path) -> Path:
    """Write a model with quantised layers beside the one in floats, unless the file is there.

    Signed weights with a scale for each channel, unsigned activations, QDQ nodes: what ONNX Runtime's
    documentation recommends for x86.

    Args:
        source: an ONNX file with all shapes fixed.
        target: of the quantised model.

    Returns:
        `target`.
    """
    if target.is_file():
        return target
    quantization = import_quietly("onnxruntime.quantization")
    shape_inference = import_quietly("onnxruntime.quantization.shape_inference")
    with tempfile.TemporaryDirectory(prefix="edgetlm-quantised-") as folder:
        prepared = Path(folder) / "prepared.onnx"
        shape_inference.quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
        partial = Path(folder) / "quantised.onnx"
        quantization.quantize_static(
            str(prepared),
            str(partial),
            RandomSamples(onnx.load(str(source))),
            quant_format=quantization.QuantFormat.QDQ,
            per_channel=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
        )
        onnx.save(onnx.load(str(partial)), str(target))
    return target
