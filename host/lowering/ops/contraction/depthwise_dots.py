"""Depthwise convolutions of bytes by dot products: see `host.lowering.passes.integers.rows_of_taps`."""

from __future__ import annotations

from tvm import te, tirx

from host.lowering.expressions.stage import Expression, Indices, Stage, load
from host.lowering.expressions.windows import padded_input
from host.lowering.graph import Node
from host.lowering.passes.integers.rows_of_taps import OPERATION, band_of, use_rows_of_taps
from host.lowering.spec import Fusion, GraphPass, OpSpec, Phase

# The blocks by which the schedule knows such a function.
INTERLEAVED, SUMS, ROWS = "interleaved_rows", "lane_dots", "rows_of_bands"
# Bits of a byte, the largest without a sign, and the place of the highest in a number.
_BITS, _BYTE, _HIGHEST = 8, 255, 24


def _write(stage: Stage, node: Node) -> None:
    """X [N, H, W, C] in bytes of the dot product's sign; weight [C / L, rows, groups, across, L, 4], signed.

    - "interleaved_rows" [N, bands, groups, W', C]: in each number of 32 bits the bytes of four rows;
    - "lane_dots" [N, bands, rows, W, C]: sums over groups, taps across and the bytes of a number;
    - "rows_of_bands" [N, H, W, C]: the same without what is beyond the image.
    """
    blocks, rows, groups, across, lanes, group = node.inputs[1].shape
    (_, stride), (_, apart) = node.attrs["strides"], node.attrs["dilation"]
    batch, _, width, channels = node.output.shape
    band = band_of(node, (node.attrs["down"], across), group)
    assert (band.rows, band.groups, blocks * lanes) == (rows, groups, channels)
    reached = (band.count - 1) * band.step + (groups * group - 1) * band.apart + 1
    columns = (width - 1) * stride + (across - 1) * apart + 1
    data, weight = _reaching(stage, node, reached, columns), stage.argument(node.inputs[1])
    signed = node.inputs[0].dtype == "int8"
    large = node.attrs["fill"] & _BYTE > _BYTE // 2
    g, t, q = (te.reduce_axis((0, size), name) for size, name in ((groups, "g"), (across, "t"), (group, "q")))

    def four(indices: Indices) -> Expression:
        n, b, place, x, c = indices
        made = None
        for byte in range(group):
            row = b * band.step + (place * group + byte) * band.apart
            number = data(n, row, x, c).astype("int32")
            number = number & _BYTE if signed else number
            shift = _BITS * byte
            if shift == _HIGHEST and large:
                # Where all of it is padding it is a constant, which is beyond the numbers with a sign.
                moved = tirx.reinterpret("int32", number.astype("uint32") << shift)
            else:
                moved = number << shift
            made = number if made is None else made | moved
        return made

    packed = stage.compute((batch, band.count, groups, columns, channels), four, INTERLEAVED)

    def element(indices: Indices) -> Expression:
        n, b, r, x, c = indices
        number = packed(n, b, g, x * stride + t * apart, c)
        if signed:
            byte = (number << (_HIGHEST - q * _BITS)) >> _HIGHEST
        else:
            byte = (number >> (q * _BITS)) & _BYTE
        return te.sum(byte * weight(c // lanes, r, g, t, c % lanes, q).astype("int32"), axis=[g, t, q])

    sums = stage.compute((batch, band.count, rows, width, channels), element, SUMS)

    def within(indices: Indices) -> Expression:
        n, y, x, c = indices
        return load(sums, [n, y // rows, y % rows, x, c])

    stage.define_tensor(node.output, stage.compute(node.output.shape, within, ROWS))


def _reaching(stage: Stage, node: Node, rows: int, columns: int) -> te.Tensor:
    """The input with its padding around it, as far as the bands read."""
    (top, left, _, _), (_, height, width, _) = node.attrs["padding"], node.inputs[0].shape
    padding = (top, left, rows - height - top, columns - width - left)
    return padded_input(stage, node, node.attrs["fill"], padding=padding)


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        OPERATION,
        passes=(GraphPass(Phase.SIMPLIFIED, use_rows_of_taps, one_length=True, decides=True),),
        fusion=Fusion(anchor=True),
    ),
    OpSpec("dot_depthwise_conv", write=_write, fusion=Fusion(anchor=True)),
)
