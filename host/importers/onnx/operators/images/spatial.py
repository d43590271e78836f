"""Convolutions and other operators over images."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from host.importers.onnx.operators.context import (
    Attributes,
    Context,
    Converter,
    Inputs,
    constant,
    constant_value,
    convert_with_tvm,
    dtype_of,
    get,
    scalar,
    shape_of,
)

# Shapes of blocks that are tried where the model computes the shape.
_MOST_BLOCKS = 8


def _conv(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """Automatic padding becomes numbers; the rest is TVM's."""
    shape, weight = shape_of(context, inputs[0]), shape_of(context, inputs[1])
    return convert_with_tvm(context, inputs, with_pads(attributes, shape[2:], weight[2:]))


def with_pads(attributes: Attributes, sizes: tuple[int, ...], kernel: tuple[int, ...]) -> dict[str, Any]:
    """The attributes with explicit padding."""
    result = dict(attributes)
    mode = result.pop("auto_pad", b"NOTSET").decode()
    if mode == "VALID":
        result["pads"] = (0,) * (2 * len(sizes))
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        return result
    strides = result.get("strides", (1,) * len(sizes))
    dilations = result.get("dilations", (1,) * len(sizes))
    before, after = [], []
    for size, length, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        reach = (length - 1) * dilation + 1
        total = max((-(-size // stride) - 1) * stride + reach - size, 0)
        low = total // 2 if mode == "SAME_UPPER" else total - total // 2
        before.append(low)
        after.append(total - low)
    result["pads"] = (*before, *after)
    return result


def _conv_transpose(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """A wanted output shape becomes padding; the rest is TVM's."""
    wanted = attributes.get("output_shape")
    if wanted is None:
        return convert_with_tvm(context, inputs, attributes)
    sizes, kernel = shape_of(context, inputs[0])[2:], shape_of(context, inputs[1])[2:]
    rank = len(sizes)
    result = {name: value for name, value in attributes.items() if name not in ("output_shape", "auto_pad")}
    strides = attributes.get("strides", (1,) * rank)
    dilations = attributes.get("dilations", (1,) * rank)
    extra = list(attributes.get("output_padding", (0,) * rank))
    upper = attributes.get("auto_pad", b"NOTSET") != b"SAME_UPPER"
    before, after = [], []
    for axis, target in enumerate(wanted[-rank:]):
        full = strides[axis] * (sizes[axis] - 1) + extra[axis] + (kernel[axis] - 1) * dilations[axis] + 1
        total = full - target
        if total < 0:
            extra[axis] -= total
            total = 0
        low = total - total // 2 if upper else total // 2
        before.append(low)
        after.append(total - low)
    if any(add >= stride for add, stride in zip(extra, strides, strict=True)):
        raise context.fail("its output is larger than what the strides allow")
    result |= {"pads": (*before, *after), "output_padding": tuple(extra)}
    return convert_with_tvm(context, inputs, result)


def _clip(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """Bounds that are constants stay constants, so that ReLU6 is seen as what it is."""
    value = inputs[0]
    dtype = dtype_of(value)
    if context.opset < 11:
        bounds = [attributes.get("min"), attributes.get("max")]
        low, high = (None if bound is None else scalar(bound, dtype) for bound in bounds)
    else:
        low, high = get(inputs, 1), get(inputs, 2)
    numbers = [None if bound is None else constant_value(bound) for bound in (low, high)]
    if np.dtype(dtype).kind == "f" and all(n is not None and np.isfinite(n).all() for n in numbers):
        return relax.op.clip(value, *[float(n.reshape(-1)[0]) for n in numbers if n is not None])
    for bound, number, apply in ((low, numbers[0], relax.op.maximum), (high, numbers[1], relax.op.minimum)):
        unbounded = number is not None and np.dtype(dtype).kind == "f" and not np.isfinite(number).all()
        if bound is not None and not unbounded:
            value = context.emit(apply(value, context.emit(relax.op.reshape(bound, ()))))
    return value


def _center_crop_pad(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    data = inputs[0]
    shape = list(shape_of(context, data))
    axes = [axis % len(shape) for axis in attributes.get("axes", range(len(shape)))]
    given = constant_value(inputs[1])
    target = (
        [context.output_shape()[axis] for axis in axes] if given is None else [int(size) for size in given]
    )
    pads = [0] * (2 * len(shape))
    for axis, size in zip(axes, target, strict=True):
        missing = size - shape[axis]
        if missing < 0:
            start = -missing // 2
            data = context.emit(relax.op.strided_slice(data, [axis], [start], [start + size], [1]))
        elif missing > 0:
            pads[2 * axis], pads[2 * axis + 1] = missing // 2, missing - missing // 2
    return relax.op.nn.pad(data, pads, "constant", 0.0) if any(pads) else data


def _affine_grid(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    size = constant_value(inputs[1])
    if size is None:
        out = context.output_shape()
        size = np.array([out[0], 1, *out[1:-1]], np.int64)
    return convert_with_tvm(context, [inputs[0], constant(size)], attributes)


def _col2im(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """Overlapping blocks added up; if the model computes their shape, all that give the image are tried."""
    image, blocks = _image_and_blocks(context, inputs, attributes)
    results = [_added_blocks(context, inputs[0], image, block, attributes) for block in blocks]
    chosen = results[0]
    for block, result in zip(blocks[1:], results[1:], strict=True):
        wanted = constant(np.array(block, dtype_of(inputs[2])))
        same = context.emit(relax.op.astype(relax.op.equal(inputs[2], wanted), "int32"))
        here = context.emit(relax.op.equal(relax.op.sum(same), scalar(len(block), "int32")))
        chosen = context.emit(relax.op.where(here, result, chosen))
    return chosen


def _added_blocks(
    context: Context, data: Any, image: tuple[int, ...], block: tuple[int, ...], attributes: Attributes
) -> Any:
    """Each element of the image gathers the block elements that cover it."""
    batch, rows, count = shape_of(context, data)
    rank = len(image)
    pads = attributes.get("pads", (0,) * (2 * rank))
    strides = attributes.get("strides", (1,) * rank)
    dilations = attributes.get("dilations", (1,) * rank)
    steps = _block_steps(image, block, attributes)
    if int(np.prod(steps)) != count:
        raise context.fail("its blocks do not fit the image")
    channels = rows // int(np.prod(block))

    def compute(columns: te.Tensor) -> te.Tensor:
        taps = [te.reduce_axis((0, size), name=f"k{axis}") for axis, size in enumerate(block)]

        def element(n: Any, c: Any, *at: Any) -> Any:
            row, column, valid = c, tirx.IntImm("int64", 0), []
            for axis, tap in enumerate(taps):
                row = row * block[axis] + tap
                offset = at[axis] + pads[axis] - tap * dilations[axis]
                step = tirx.floordiv(offset, strides[axis])
                fits = tirx.all(tirx.floormod(offset, strides[axis]) == 0, step >= 0, step < steps[axis])
                valid.append(fits)
                column = column * steps[axis] + tirx.max(tirx.min(step, steps[axis] - 1), 0)
            value = tirx.if_then_else(tirx.all(*valid), columns(n, row, column), tirx.const(0, columns.dtype))
            return te.sum(value, axis=taps)

        return te.compute((batch, channels, *image), element, name="col2im")

    return context.compute(compute, data)


def _block_steps(image: tuple[int, ...], block: tuple[int, ...], attributes: Attributes) -> tuple[int, ...]:
    """How many blocks fit along each axis."""
    rank = len(image)
    pads = attributes.get("pads", (0,) * (2 * rank))
    strides = attributes.get("strides", (1,) * rank)
    dilations = attributes.get("dilations", (1,) * rank)
    return tuple(
        (image[i] + pads[i] + pads[i + rank] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1
        for i in range(rank)
    )


def _image_and_blocks(
    context: Context, inputs: Inputs, attributes: Attributes
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """The size of the image, and the sizes of a block that give it."""
    _, rows, count = shape_of(context, inputs[0])
    given_image, given_block = constant_value(inputs[1]), constant_value(inputs[2])
    if given_image is not None and given_block is not None:
        return tuple(int(size) for size in given_image), [tuple(int(size) for size in given_block)]
    out = context.output_shape()
    image, volume = out[2:], rows // out[1]
    if given_block is not None:
        return image, [tuple(int(size) for size in given_block)]
    divisors = [size for size in range(1, volume + 1) if volume % size == 0]
    fitting = [
        block
        for block in product(divisors, repeat=len(image))
        if int(np.prod(block)) == volume and _fits(image, block, attributes, count)
    ]
    if not 0 < len(fitting) <= _MOST_BLOCKS:
        raise context.fail("the shape of its blocks depends on the model's inputs")
    return image, fitting


def _fits(image: tuple[int, ...], block: tuple[int, ...], attributes: Attributes, count: int) -> bool:
    steps = _block_steps(image, block, attributes)
    return all(step > 0 for step in steps) and int(np.prod(steps)) == count


CONVERTERS: dict[str, Converter] = {
    "AffineGrid": _affine_grid,
    "CenterCropPad": _center_crop_pad,
    "Clip": _clip,
    "Col2Im": _col2im,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
}
