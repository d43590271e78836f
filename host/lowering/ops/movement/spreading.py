"""What `decompose_transposed` makes of transposed convolutions: parts interleaved, zeros between elements."""

from __future__ import annotations

from math import prod

from tvm import tirx

from host.lowering.expressions.stage import Expression, Indices, Stage
from host.lowering.graph import Node
from host.lowering.spec import Fusion, OpSpec


def _interleave(stage: Stage, node: Node) -> None:
    """Output position o comes from part o mod stride, at o div stride; parts in row-major order."""
    strides = node.attrs["strides"]

    def element(indices: Indices) -> Expression:
        n, *position, c = indices
        source = [n, *(o // s if s != 1 else o for o, s in zip(position, strides, strict=True)), c]

        def choose(d: int, first: int) -> Expression:
            """Among the parts from `first` on that differ in dimension `d` and later ones."""
            if d == len(strides):
                return stage.element(node.inputs[first], source)
            step = prod(
                min(s, o) for s, o in zip(strides[d + 1 :], node.output.shape[d + 2 : -1], strict=True)
            )
            count = min(strides[d], node.output.shape[d + 1])
            result = choose(d + 1, first + (count - 1) * step)
            for q in reversed(range(count - 1)):
                part = choose(d + 1, first + q * step)
                result = tirx.if_then_else(position[d] % strides[d] == q, part, result)
            return result

        return choose(0, 0)

    stage.define(node.output, element)


def _dilate(stage: Stage, node: Node) -> None:
    """Insert `strides - 1` zeros between neighbouring elements of each dimension."""
    strides = node.attrs["strides"]

    def element(indices: Indices) -> Expression:
        spread = [(i, s) for i, s in zip(indices, strides, strict=True) if s != 1]
        source = [i // s if s != 1 else i for i, s in zip(indices, strides, strict=True)]
        value = stage.scoped(lambda: stage.element(node.inputs[0], source))
        inside = tirx.all(*(i % s == 0 for i, s in spread))
        return tirx.if_then_else(inside, value, tirx.const(0, node.output.dtype))

    stage.define(node.output, element)


SPECS: tuple[OpSpec, ...] = (
    OpSpec("interleave", write=_interleave, fusion=Fusion(inlined=True)),
    OpSpec("dilate", write=_dilate),
)
