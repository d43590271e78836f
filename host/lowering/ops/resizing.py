"""Images of another resolution; attributes `method` ("linear" or "nearest") and `along`.

`along` has an entry for each dimension: None where nothing is resized, else how a position of the result is
found in the input ("half_pixel", "align_corners" or "asymmetric", as in ONNX's operator Resize).
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from host.lowering.builder import Builder
from host.lowering.expressions.stage import Expression, Indices, Stage
from host.lowering.graph import Node, Value
from host.lowering.ops.image_layout import SPATIAL, channels_last, order, plain
from host.lowering.passes.permutations.channels import Channels
from host.lowering.passes.permutations.sink_permutations import PermutationWalk, channel_by_channel
from host.lowering.passes.sink_transposes import Ordered, TransposeWalk, inverse, per_dimension
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import Fusion, OpSpec

_METHODS = {"linear": "linear", "nearest_neighbor": "nearest"}
_COORDINATES = ("half_pixel", "align_corners", "asymmetric")
# With so many channels, and more, they are last in memory: the neighbours of a position are vectors then.
_CHANNELS = 8


def _read(builder: Builder, call: OperatorCall) -> Value | None:
    """What has one value at each position of the input; rounding other than down is left to TVM."""
    attrs, data, layout = call.attrs, call.value(0), str(call.attrs.layout)
    method, coordinates = _METHODS.get(str(attrs.method)), str(attrs.coordinate_transformation_mode)
    if method is None or coordinates not in _COORDINATES or not plain(layout) or data.dtype != "float32":
        return None
    if method == "nearest" and (coordinates, str(attrs.rounding_method)) != ("asymmetric", "floor"):
        return None
    last = channels_last(layout) if data.shape[layout.index("C")] >= _CHANNELS else layout
    result = builder.one(
        "resize",
        [builder.transpose(data, order(layout, last))],
        tuple(call.shape[axis] for axis in order(layout, last)),
        call.dtype,
        method=method,
        along=tuple(coordinates if letter in SPATIAL else None for letter in last),
    )
    return builder.transpose(result, order(last, layout))


def _simplify(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | None:
    """Of a tensor that keeps its size: the tensor."""
    return inputs[0] if inputs[0].shape == node.output.shape else None


def _write(stage: Stage, node: Node) -> None:
    """Block "resize": two neighbours along each dimension that is resized, weighed by how near they are."""
    value = node.inputs[0]
    resized = [
        axis
        for axis, mode in enumerate(node.attrs["along"])
        if mode is not None and value.shape[axis] != node.output.shape[axis]
    ]

    def mixed(axes: list[int], indices: Indices, source: list[Any]) -> Expression:
        if not axes:
            return stage.element(value, source)
        axis, *rest = axes
        lower, upper, part = _neighbours(node, axis, indices[axis])
        first = mixed(rest, indices, [*source[:axis], lower, *source[axis + 1 :]])
        if part is None:
            return first
        second = mixed(rest, indices, [*source[:axis], upper, *source[axis + 1 :]])
        return first + (second - first) * part

    element = stage.compute(node.output.shape, lambda i: mixed(resized, i, list(i)), "resize")
    stage.define_tensor(node.output, element)


def _neighbours(node: Node, axis: int, index: Any) -> tuple[Any, Any, Expression | None]:
    """The two positions of the input beside one of the result, and how near the second one is, 0 to 1."""
    size, made = node.inputs[0].shape[axis], node.output.shape[axis]
    if node.attrs["method"] == "nearest":
        return (index // (made // size) if made % size == 0 else index * size // made), None, None
    mode = node.attrs["along"][axis]
    scale = (size - 1) / max(1, made - 1) if mode == "align_corners" else size / made
    offset = 0.5 * scale - 0.5 if mode == "half_pixel" else 0.0
    position = tirx.Cast("float32", index) * tirx.const(scale, "float32") + tirx.const(offset, "float32")
    position = tirx.max(tirx.min(position, tirx.const(size - 1.0, "float32")), tirx.const(0.0, "float32"))
    # Nothing is below zero, so that a conversion rounds down.
    lower = tirx.Cast("int32", position)
    part = position - tirx.Cast("float32", lower)
    return lower, tirx.min(lower + 1, size - 1), part


def _sink_transpose(walk: TransposeWalk, node: Node) -> Ordered | None:
    """Not if dimensions that are resized would be last: the smaller image is transposed then."""
    along = node.attrs["along"]
    last = along[inverse(walk.get(node.inputs[0]).order)[-1]]
    return None if along[-1] is None and last is not None else per_dimension("along")(walk, node)


def _sink_permutation(walk: PermutationWalk, node: Node) -> Channels | None:
    return None if node.attrs["along"][-1] is not None else channel_by_channel(walk, node)


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        "resize",
        read={"image.resize2d": _read},
        write=_write,
        simplify=_simplify,
        # Not computed within what reads it: each element has several neighbours and indices of its own.
        fusion=Fusion(anchor=True),
        sink_transpose=_sink_transpose,
        sink_permutation=_sink_permutation,
    ),
)
