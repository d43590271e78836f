"""Elements of a quantised weight, whose numbers are loaded a chunk at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import tirx

from host.schedules.cuda.epilogue import loads
from host.schedules.cuda.mma import instructions as ptx
from host.schedules.cuda.mma.product import Operand, Product
from host.tensor_ir.structural import mapped


def packed_chunk(
    product: Product, operand: Operand, registers: tirx.Buffer, first: tuple[Any, Any]
) -> tuple[list[tirx.Stmt], Callable[[Any, Any], Any]]:
    """The load of all numbers of a chunk, and what makes of an element one that takes its own of them.

    Nothing, and the element as it is, where an operand is not quantised or its chunks do not lie together.

    Args:
        product: of the operand.
        operand: whose chunk it is.
        registers: bytes for the numbers.
        first: the first element of the chunk, and whether it exists; None where all do.
    """
    chunk, size = product.chunk, int(operand.stored * product.chunk)
    if not (operand.computed and operand.along_depth and product.steps % chunk == 0):
        return [], lambda element, number: element
    element, inside = first
    weight = loads(element)[0]
    kind = str(weight.source.dtype)

    def taken(element: Any, number: Any) -> Any:
        own = tirx.BufferLoad(registers, [number // (chunk // size)])
        own = own if kind == "uint8" else tirx.reinterpret(kind, own)
        return mapped(
            element, (tvm.ir.TensorLoad, lambda one: own if one.source.same_as(weight.source) else one)
        )

    load = ptx.load_packed(registers.data, tirx.address_of(weight), size)
    return [load if inside is None else tirx.IfThenElse(inside, load, None)], taken
