"""Values for inputs that parametrise an operator: shapes, axes, counts.

Drawn at random hardly any of them would be accepted. The shapes that the model declares say what they can be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import onnx
from onnx import NodeProto

Shape = tuple[int, ...]

# The axes of tensors of a higher rank are not looked for: there are too many choices of them.
_MAX_RANK = 12


@dataclass(frozen=True)
class _Use:
    """An input of the model as a parameter of a node.

    Attributes:
        node: who reads it.
        slot: as which of its inputs.
        data: shape of the node's first input.
        out: shapes of the node's outputs.
        shape: of the parameter itself.
    """

    node: NodeProto
    slot: int
    data: Shape
    out: tuple[Shape, ...]
    shape: Shape

    def attribute(self, name: str, default: int) -> int:
        """A whole number among the node's attributes."""
        return next((int(entry.i) for entry in self.node.attribute if entry.name == name), default)

    @property
    def axis(self) -> int:
        """The node's axis, counted from the start."""
        return self.attribute("axis", -1) % max(len(self.out[0]), 1)

    @property
    def axes(self) -> list[int]:
        """The node's axes, all of them by default."""
        listed = next((list(entry.ints) for entry in self.node.attribute if entry.name == "axes"), None)
        rank = max(len(self.data), 1)
        return list(range(len(self.data))) if listed is None else [axis % rank for axis in listed]


def parameter_value(
    name: str, shape: Shape, graph: onnx.GraphProto, shapes: dict[str, Shape | None]
) -> np.ndarray | None:
    """A value that the operator reading an input accepts; None if the input is no such parameter.

    Args:
        name: an input of the model.
        shape: its shape.
        graph: a simplified graph.
        shapes: shapes of all values, as far as they are known.
    """
    for node in graph.node:
        for slot, given in enumerate(node.input):
            rule = _RULES.get((node.op_type, slot))
            if given != name or rule is None:
                continue
            data, out = shapes.get(node.input[0]), [shapes.get(output) for output in node.output if output]
            known = [size for size in out if size is not None]
            if data is None or len(known) != len(out) or not known:
                continue
            if max(len(data), len(known[0])) > _MAX_RANK:
                continue
            value = rule(_Use(node, slot, data, tuple(known), shape))
            if value is not None and np.size(value) == int(np.prod(shape, dtype=np.int64)):
                return np.asarray(value).reshape(shape)
    return None


def _output_shape(use: _Use) -> np.ndarray:
    return np.array(use.out[0])


def _repeats(use: _Use) -> np.ndarray:
    return np.array([whole // max(part, 1) for whole, part in zip(use.out[0], use.data, strict=True)])


def _inserted(use: _Use) -> np.ndarray | None:
    """The axes of an Unsqueeze, from the shapes of input and output; None where no axes fit."""
    for axes in combinations(range(len(use.out[0])), len(use.out[0]) - len(use.data)):
        rest = tuple(size for axis, size in enumerate(use.out[0]) if axis not in axes)
        if rest == use.data and all(use.out[0][axis] == 1 for axis in axes):
            return np.array(axes)
    return None


def _dropped(use: _Use) -> np.ndarray | None:
    """The axes of a Squeeze, from the shapes of input and output; None where no axes fit."""
    for axes in combinations(range(len(use.data)), len(use.data) - len(use.out[0])):
        if tuple(size for axis, size in enumerate(use.data) if axis not in axes) == use.out[0]:
            return np.array(axes)
    return None


def _reduced(use: _Use) -> np.ndarray | None:
    """The axes of a reduction, from the shapes of input and output; None where no axes fit."""
    keep = use.attribute("keepdims", 1)
    for axes in combinations(range(len(use.data)), int(np.prod(use.shape, dtype=np.int64))):
        kept = [
            (1 if axis in axes else size) for axis, size in enumerate(use.data) if keep or axis not in axes
        ]
        if tuple(kept) == use.out[0]:
            return np.array(axes)
    return None


def _slice_axes(use: _Use) -> list[int]:
    """As many axes as are wanted, those that a slice shortens first."""
    count = int(np.prod(use.shape, dtype=np.int64))
    order = sorted(range(len(use.data)), key=lambda axis: use.data[axis] == use.out[0][axis])
    has_axes = len(use.node.input) > 3 and bool(use.node.input[3])
    return sorted(order[:count]) if has_axes else list(range(count))


def _slice(use: _Use) -> np.ndarray:
    axes = _slice_axes(use)
    values = {
        1: [0 for _ in axes],
        2: [use.out[0][axis] for axis in axes],
        3: axes,
        4: [1 for _ in axes],
    }
    return np.array(values[use.slot])


def _pad(use: _Use) -> np.ndarray:
    changed = [axis for axis, (a, b) in enumerate(zip(use.data, use.out[0], strict=True)) if a != b]
    if use.slot == 3:
        others = [axis for axis in range(len(use.data)) if axis not in changed]
        return np.array(sorted([*changed, *others][: use.shape[0]]))
    count = use.shape[0] // 2
    others = [axis for axis in range(len(use.data)) if axis not in changed]
    axes = sorted([*changed, *others][:count])
    total = [use.out[0][axis] - use.data[axis] for axis in axes]
    before = [width // 2 for width in total]
    return np.array([*before, *[width - low for width, low in zip(total, before, strict=True)]])


def _resize(use: _Use) -> np.ndarray:
    sizes = [use.out[0][axis] for axis in use.axes]
    if use.slot == 3:
        return np.array(sizes)
    return np.array([_scale(use.data[axis], size) for axis, size in zip(use.axes, sizes, strict=True)])


def _scale(size: int, out: int) -> np.float32:
    """The smallest float32 at or above the quotient that gives the size when rounded down."""
    scale = np.float32(out / size)
    while np.floor(np.float32(size) * scale) < out:
        scale = np.nextafter(scale, np.float32(np.inf))
    return scale


def _region(use: _Use) -> np.ndarray:
    count = use.shape[0] // 2
    return np.array([0.0] * count + [1.0] * count)


def _length(use: _Use) -> np.ndarray:
    return np.array(use.out[0][use.axis])


def _split(use: _Use) -> np.ndarray:
    axis = use.attribute("axis", 0) % len(use.data)
    return np.array([size[axis] for size in use.out])


def _range(use: _Use) -> np.ndarray:
    return np.array({0: 0, 1: use.out[0][0], 2: 1}[use.slot])


def _crop(use: _Use) -> np.ndarray:
    return np.array([use.out[0][axis] for axis in use.axes])


def _grid(use: _Use) -> np.ndarray:
    return np.array([use.out[0][0], 1, *use.out[0][1:-1]])


def _constant(value: float) -> Callable[[_Use], np.ndarray]:
    return lambda use: np.full(use.shape, value)


_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

_RULES: dict[tuple[str, int], Callable[[_Use], np.ndarray | None]] = {
    ("Reshape", 1): _output_shape,
    ("Expand", 1): _output_shape,
    ("ConstantOfShape", 0): _output_shape,
    ("Tile", 1): _repeats,
    ("Unsqueeze", 1): _inserted,
    ("Squeeze", 1): _dropped,
    **{(f"Reduce{name}", 1): _reduced for name in _REDUCTIONS},
    **{("Slice", slot): _slice for slot in (1, 2, 3, 4)},
    **{("Pad", slot): _pad for slot in (1, 3)},
    ("Resize", 1): _region,
    **{("Resize", slot): _resize for slot in (2, 3)},
    ("Upsample", 1): _resize,
    ("TopK", 1): _length,
    ("OneHot", 1): _length,
    ("Split", 1): _split,
    **{("Range", slot): _range for slot in (0, 1, 2)},
    ("CenterCropPad", 1): _crop,
    ("AffineGrid", 1): _grid,
    ("CumSum", 1): _constant(0),
    ("CumProd", 1): _constant(0),
    ("Trilu", 1): _constant(0),
    ("Dropout", 1): _constant(0.5),
    ("Dropout", 2): _constant(0),
}
