"""How far a model's outputs move when its tensors are rounded to halves: what fp16 or bf16 may be off by."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from host.engines import run_reference
from host.errors import EngineError
from host.importers.golden import differing, relative_distance
from host.importers.onnx.model_file import write_model
from host.model import HALF_SPREADS, GoldenCase, ImportedModel

# Weights are one of two roundings: every layer's result is rounded too, which moves the outputs about as far.
_ROUNDINGS = 2.0
# Elements of the smallest constants that are rounded.
_SMALLEST = 1024
_HALF = TensorProto.FLOAT16


def with_half_spread(model: ImportedModel, half: str) -> tuple[GoldenCase, ...]:
    """The golden cases with the spread of the model in half precision.

    Some models enlarge a small error ten times, others none of it. An ONNX file's own is measured: its
    original runtime computes it with its weights rounded to half. Other formats have the usual one.

    Args:
        model: with its golden cases.
        half: the type of halves, "float16" or "bfloat16".

    Raises:
        EngineError: the original runtime does not run the rounded file.
    """
    usual = [replace(case, spread=max(case.spread, HALF_SPREADS[half])) for case in model.golden]
    if model.format != "onnx":
        return tuple(usual)
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as folder:
        rounded = Path(folder) / model.path.name
        _write_rounded(model.path, rounded, half)
        outputs = run_reference("onnxruntime", rounded, [case.inputs for case in usual])
    return tuple(
        replace(
            case,
            spread=max(case.spread, _ROUNDINGS * _moved(case.outputs, made)),
            shares=_differing(case, made),
        )
        for case, made in zip(usual, outputs, strict=True)
    )


def _differing(case: GoldenCase, other: Sequence[np.ndarray]) -> tuple[float | None, ...]:
    """The shares of classes that differ, with those that the case has."""
    known = [case.share(place) for place in range(len(case.outputs))]
    return tuple(
        None if share is None else max(share, differing(a, b))
        for share, a, b in zip(known, case.outputs, other, strict=True)
    )


def has_halves(model: onnx.ModelProto, weights: Mapping[str, np.ndarray]) -> bool:
    """Whether a file computes in halves: it has such weights, or converts to them.

    Args:
        model: without its large weights.
        weights: these.
    """
    has_weights = any(tensor.data_type == _HALF for tensor in model.graph.initializer)
    return (
        has_weights
        or any(array.dtype == np.float16 for array in weights.values())
        or any(_is_conversion(node, entry) for node in model.graph.node for entry in node.attribute)
    )


def with_rounding_of_halves(golden: Sequence[GoldenCase], model: onnx.ModelProto) -> tuple[GoldenCase, ...]:
    """Cases of a file in halves, with how far its own rounding to halves moves the outputs.

    ONNX Runtime rounds at the same places with its graph optimisations and without, and another compiler at
    others: what that may move shows where the file is computed in single precision.

    Args:
        golden: the cases.
        model: in standard operators, with its weights; it is changed.
    """
    _in_floats(model)
    inputs = [
        [one.astype(np.float32) if one.dtype == np.float16 else one for one in case.inputs] for case in golden
    ]
    with tempfile.TemporaryDirectory(prefix="edgetlm-floats-") as folder:
        path = Path(folder) / "model.onnx"
        write_model(model, path)
        try:
            outputs = run_reference("onnxruntime", path, inputs)
        except EngineError:
            return tuple(golden)
    return tuple(
        replace(case, spread=max(case.spread, _moved(case.outputs, made)), shares=_differing(case, made))
        for case, made in zip(golden, outputs, strict=True)
    )


def _is_conversion(node: onnx.NodeProto, entry: onnx.AttributeProto) -> bool:
    return bool(node.op_type == "Cast" and entry.name == "to" and entry.i == _HALF)


def _in_floats(model: onnx.ModelProto) -> None:
    """Turn halves into numbers of single precision: weights, constants, conversions, inputs and outputs."""
    graph = model.graph
    tensors = [*graph.initializer]
    for node in graph.node:
        for entry in node.attribute:
            if _is_conversion(node, entry):
                entry.i = TensorProto.FLOAT
            tensors += [entry.t] if entry.HasField("t") else []
    for tensor in tensors:
        if tensor.data_type == _HALF:
            values = numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == _HALF:
            value.type.tensor_type.elem_type = TensorProto.FLOAT


def _moved(golden: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> float:
    """How far outputs in floats are; of classes and other integers another is not nearly right."""
    pairs = ((a, b) for a, b in zip(golden, other, strict=True) if a.dtype.kind == "f")
    return max((relative_distance(a, b) for a, b in pairs), default=0.0)


def _write_rounded(source: Path, target: Path, half: str) -> None:
    model = onnx.load(str(source))
    limits, kind = ml_dtypes.finfo(half), np.dtype(half)
    for tensor in model.graph.initializer:
        # Small constants stay as they are when the model is compiled: sizes, scales, bounds.
        if tensor.data_type != TensorProto.FLOAT or prod(tensor.dims) < _SMALLEST:
            continue
        values = np.clip(numpy_helper.to_array(tensor), float(limits.min), float(limits.max))
        tensor.CopyFrom(numpy_helper.from_array(values.astype(kind).astype(np.float32), tensor.name))
    onnx.save(model, str(target))
