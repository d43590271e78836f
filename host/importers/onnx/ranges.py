"""What integer inputs of an ONNX graph may be: indices into a tensor of known size, lengths, or masks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx

from host.importers.onnx.evaluate import static_shape, value_types
from host.importers.onnx.parameters import Shape, parameter_value
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
    "Gather",
    "GatherElements",
    "Split",
    "Tile",
}

# Operators that hand on some values in order, or each once, and other numbers behind them: exporters sort
# the lengths of sequences.
_ORDERING = {"TopK", "Unique"}
# Operators whose second input has regions, and how many numbers a region is: corners, which may have the
# number of an image before them.
_REGIONS = {"RoiAlign": 4, "MaxRoiPool": 5}


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


def _range(spec: TensorSpec, graph: onnx.GraphProto, shapes: dict[str, Shape | None]) -> InputRange:
    value = parameter_value(spec.name, spec.shape, graph, shapes)
    if value is not None:
        return InputRange(spec, value=value)
    if "int" not in spec.dtype:
        mask = spec.dtype == "float32" and looks_like_mask(spec.name)
        return _of_regions(spec, graph, shapes) or InputRange(spec, mask=mask)
    bounds = _bounds(spec.name, graph, shapes)
    if bounds:
        high = min(high for _, high in bounds)
        return InputRange(spec, min(max(low for low, _ in bounds), high - 1), high)
    return InputRange(spec, mask=looks_like_mask(spec.name))


def _of_regions(
    spec: TensorSpec, graph: onnx.GraphProto, shapes: dict[str, Shape | None]
) -> InputRange | None:
    """The range of an input that has regions of images; None for any other input.

    ONNX Runtime refuses regions whose second corner is far before the first, and numbers of no image.
    """
    for node in graph.node:
        if node.op_type not in _REGIONS or node.input[1] != spec.name:
            continue
        images = shapes.get(node.input[0])
        scale = next((entry.f for entry in node.attribute if entry.name == "spatial_scale"), 1.0)
        if images and len(images) == 4 and scale > 0 and spec.shape[-1:] == (_REGIONS[node.op_type],):
            numbered = max(images[0], 1) if _REGIONS[node.op_type] == 5 else None
            return InputRange(spec, image=(images[3] / scale, images[2] / scale), images=numbered)
    return None


def _bounds(name: str, graph: onnx.GraphProto, shapes: dict[str, Shape | None]) -> list[tuple[int, int]]:
    """The least value, and the least too large one, for each reader of `name` as indices or lengths.

    Lengths of recurrent layers are at least half of the steps, as those of masks: shorter ones would leave
    most of a layer unverified, and time little of it.
    """
    carriers, bounds = {name}, list[tuple[int, int]]()
    for node in graph.node:
        for slot, given in enumerate(node.input):
            rule = _RULES.get((node.op_type, slot))
            if given not in carriers or rule is None:
                continue
            bound = rule(_Use(node, shapes))
            if bound is not None:
                bounds.append((bound // 2 if rule is _step else 0, bound))
        # A tuple of indices, one for each axis, is put together.
        passed = node.input if node.op_type == "Concat" else node.input[:1]
        if node.op_type in (*_PASSING, *_ORDERING, "Concat") and any(given in carriers for given in passed):
            carriers.update(node.output[:1] if node.op_type in _ORDERING else node.output)
    return bounds


@dataclass(frozen=True)
class _Use:
    """A node that reads indices or lengths.

    Attributes:
        node: the node.
        shapes: shapes of all values, as far as they are known.
    """

    node: onnx.NodeProto
    shapes: dict[str, Shape | None]

    def attribute(self, name: str, default: int) -> int:
        """A whole number among the node's attributes."""
        return next((int(entry.i) for entry in self.node.attribute if entry.name == name), default)

    def shape(self, slot: int) -> Shape:
        """The shape of an input; empty where it is not known."""
        return self.shapes.get(self.node.input[slot]) or ()

    def size(self, slot: int, axis: int) -> int | None:
        """The size of an input along an axis; None where it is not known."""
        return _size(self.shape(slot), axis)

    @property
    def result(self) -> Shape:
        """The shape of the first output; empty where it is not known."""
        return self.shapes.get(self.node.output[0]) or ()


def _size(shape: Shape, axis: int) -> int | None:
    return shape[axis] if -len(shape) <= axis < len(shape) else None


def _along_axis(use: _Use) -> int | None:
    return use.size(0, use.attribute("axis", 0))


def _tuples(use: _Use) -> int | None:
    """The smallest of the axes that the last axis of the indices has an index for."""
    first, indices = use.attribute("batch_dims", 0), use.shape(1)
    last = first + indices[-1] if indices else None
    return min(use.shape(0)[first:last], default=None)


def _class(use: _Use) -> int | None:
    """The number of classes, from the shape of the output: it is a value, which may be an input too."""
    return _size(use.result, use.attribute("axis", -1)) or 2


def _image(use: _Use) -> int | None:
    return use.size(0, 0)


def _element(use: _Use) -> int | None:
    return int(np.prod(use.result, dtype=np.int64)) if use.result else None


def _step(use: _Use) -> int | None:
    """One more than the number of steps: the values are lengths."""
    steps = use.size(0, use.attribute("layout", 0))
    return None if steps is None else steps + 1


def _reversed(use: _Use) -> int | None:
    steps = use.size(0, use.attribute("time_axis", 0))
    return None if steps is None else steps + 1


def _place_in_cache(use: _Use) -> int | None:
    """Where a part of a cache begins that still ends within it."""
    axis = use.attribute("axis", -2)
    whole, part = use.size(0, axis), use.size(1, axis)
    return None if whole is None or part is None else whole - part + 1


# By operator and place among its inputs.
_RULES: dict[tuple[str, int], Callable[[_Use], int | None]] = {
    **{(name, 1): _along_axis for name in ("Gather", "GatherElements", "Scatter", "ScatterElements")},
    **{(name, 1): _tuples for name in ("GatherND", "ScatterND")},
    **{(name, 4): _step for name in ("GRU", "LSTM", "RNN")},
    ("MaxUnpool", 1): _element,
    ("OneHot", 0): _class,
    ("ReverseSequence", 1): _reversed,
    ("RoiAlign", 2): _image,
    ("TensorScatter", 2): _place_in_cache,
}
