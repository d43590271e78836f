"""What integer inputs of an ONNX graph may be: indices into a table of known size, lengths, or masks."""

from __future__ import annotations

import numpy as np
import onnx

from host.importers.onnx.evaluate import static_shape, value_types
from host.importers.onnx.parameters import parameter_value
from host.importers.random_inputs import InputRange, looks_like_mask
from host.model import TensorSpec

# Operators that hand the values of their first input on unchanged.
_PASSING = {
    "Cast",
    "Reshape",
    "Unsqueeze",
    "Squeeze",
    "Identity",
    "Flatten",
    "Transpose",
    "Expand",
    "Slice",
    "Concat",
    "Gather",
    "GatherElements",
    "Split",
    "Tile",
}
_GATHERS = {"Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"}
_RECURRENT = {"RNN", "GRU", "LSTM"}
# The input of a recurrent layer that says how many steps each sequence has.
_LENGTHS = 4


def input_ranges(
    model: onnx.ModelProto, weights: dict[str, np.ndarray], specs: tuple[TensorSpec, ...]
) -> list[InputRange]:
    """The values that each input may take, as far as the graph shows.

    Args:
        model: a simplified graph.
        weights: large weights by name.
        specs: the inputs, in order.
    """
    shapes = {name: static_shape(value) for name, value in value_types(model.graph).items()}
    shapes |= {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    shapes |= {name: array.shape for name, array in weights.items()}
    return [_range(spec, model.graph, shapes) for spec in specs]


def _range(spec: TensorSpec, graph: onnx.GraphProto, shapes: dict[str, tuple[int, ...] | None]) -> InputRange:
    value = parameter_value(spec.name, spec.shape, graph, shapes)
    if value is not None:
        return InputRange(spec, value=value)
    if "int" not in spec.dtype:
        return InputRange(spec, mask=spec.dtype == "float32" and looks_like_mask(spec.name))
    bounds = _bounds(spec.name, graph, shapes)
    if bounds:
        high = min(high for _, high in bounds)
        return InputRange(spec, min(max(low for low, _ in bounds), high - 1), high)
    return InputRange(spec, mask=looks_like_mask(spec.name))


def _bounds(
    name: str, graph: onnx.GraphProto, shapes: dict[str, tuple[int, ...] | None]
) -> list[tuple[int, int]]:
    """The least value of `name` and the one behind the greatest, for each table that it indexes.

    Lengths of sequences are at least half of the steps, as those of masks: shorter ones would leave most of a
    recurrent layer unverified, and time little of it.
    """
    carriers, bounds = {name}, list[tuple[int, int]]()
    for node in graph.node:
        if node.op_type in _GATHERS and node.input[1] in carriers:
            table = shapes.get(node.input[0])
            axis = next((entry.i for entry in node.attribute if entry.name == "axis"), 0)
            if table:
                bounds.append((0, table[axis] if node.op_type != "GatherND" else min(table)))
        elif node.op_type == "OneHot" and node.input[0] in carriers:
            bounds.append((0, 2))
        elif node.op_type in _RECURRENT and carriers.intersection(node.input[_LENGTHS : _LENGTHS + 1]):
            sequences = shapes.get(node.input[0])
            batch_first = next((entry.i for entry in node.attribute if entry.name == "layout"), 0)
            if sequences:
                steps = sequences[1 if batch_first else 0]
                bounds.append(((steps + 1) // 2, steps + 1))
        elif node.op_type in _PASSING and any(value in carriers for value in node.input[:1]):
            carriers.update(node.output)
    return bounds
