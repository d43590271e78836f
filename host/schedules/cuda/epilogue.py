"""The parts of a product's function beside the product: elements of the operands, and the use of the sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from host.schedules.cpu.common import epilogue_names, inline_chain, prologue_names
from host.schedules.workload import Workload
from host.tensor_ir.structural import mapped

# What the blocks of a row or a column can share.
_COMBINATIONS = (tirx.Add, tirx.Mul, tirx.Max, tirx.Min)


@dataclass(frozen=True)
class Epilogue:
    """The last stage of a function, and the anchor whose results it takes.

    Attributes:
        anchor: variables of the anchor, by axis.
        block: of the last stage; the anchor's own where there is no other.
        result: buffer of the anchor.
        columns: of the function's result.
    """

    anchor: tuple[Any, ...]
    block: s_tir.SBlock
    result: tirx.Buffer
    columns: int

    def in_anchor(self, expression: Any, values: Mapping[int, Any]) -> Any:
        """An expression of the anchor for one iteration; axes that are left out are of one iteration."""
        return replaced(expression, self.anchor, [values.get(axis, 0) for axis in range(len(self.anchor))])

    def store(self, values: Mapping[int, Any], value: Any) -> tirx.Stmt:
        """The store of the last stage for one result of the anchor.

        Args:
            values: iteration of each axis of the anchor.
            value: the result.
        """
        buffer, computed, places = self.end(values, value)
        return tirx.BufferStore(buffer, computed, places)

    def end(self, values: Mapping[int, Any], value: Any) -> tuple[tirx.Buffer, Any, list[Any]]:
        """What the last stage stores for one result of the anchor: a buffer, the number, and its place.

        Args:
            values: iteration of each axis of the anchor.
            value: the result.
        """
        if self.block.writes[0].source.same_as(self.result):
            return self.result, value, [values.get(axis, 0) for axis in range(len(self.result.shape))]
        store = self.block.body
        known = self._variables(values)
        variables = [axis.var for axis in self.block.iter_vars]
        inside = [known.get(number, 0) for number in range(len(variables))]
        computed = mapped(
            store.value,
            (tvm.ir.TensorLoad, lambda load: value if load.source.same_as(self.result) else load),
        )
        places = [replaced(index, variables, inside) for index in store.indices]
        return store.buffer, replaced(computed, variables, inside), places

    def _variables(self, values: Mapping[int, Any]) -> dict[int, Any]:
        """The iteration of each axis of the last stage, by where it reads the anchor's results."""
        variables = [axis.var for axis in self.block.iter_vars]
        known: dict[int, Any] = {}
        for load in loads(self.block.body.value):
            if not load.source.same_as(self.result):
                continue
            for axis, index in enumerate(load.indices):
                for number, variable in enumerate(variables):
                    if index.same_as(variable):
                        known[number] = values.get(axis, 0)
        return known


@dataclass(frozen=True)
class Element:
    """An element of an operand, in the variables of the anchor.

    Attributes:
        load: of the argument, or what is computed of arguments.
        conditions: all of which hold where it is read; elsewhere it is a constant.
    """

    load: Any
    conditions: tuple[Any, ...]


def inlined(
    schedule: s_tir.Schedule, workload: Workload, columns: int
) -> tuple[tuple[Element, Element], Epilogue]:
    """The elements of the anchor's operands and its epilogue, with the stages before and after it inlined.

    Args:
        schedule: of the function, which is left with the anchor and its last stage.
        workload: of the function.
        columns: of the result.
    """
    anchor, epilogue = anchor_and_epilogue(schedule, workload, columns)
    factors = anchor.body.value.b
    while isinstance(factors, tirx.Cast):
        factors = factors.value
    return (_element(factors.a), _element(factors.b)), epilogue


def anchor_and_epilogue(
    schedule: s_tir.Schedule, workload: Workload, columns: int
) -> tuple[s_tir.SBlock, Epilogue]:
    """The block of the anchor and its epilogue, with the stages before and after the anchor inlined.

    Args:
        schedule: of the function, which is left with the anchor and its last stage.
        workload: of the function.
        columns: of the result.
    """
    names = inline_chain(schedule, epilogue_names(workload))
    for name in prologue_names(workload):
        schedule.compute_inline(schedule.get_sblock(name))
    anchor = schedule.get(schedule.get_sblock(workload.anchor_stage.name))
    last = schedule.get(schedule.get_sblock(names[-1])) if names else anchor
    variables = tuple(axis.var for axis in anchor.iter_vars)
    return anchor, Epilogue(variables, last, anchor.body.buffer, columns)


def _element(factor: Any) -> Element:
    """What a factor of the product is, without casts, and the conditions under which it is read."""
    conditions = []
    while isinstance(factor, tirx.Cast | tvm.ir.Call):
        if isinstance(factor, tirx.Cast):
            factor = factor.value
        else:
            condition, factor, _ = factor.args
            conditions.append(condition)
    return Element(factor, tuple(conditions))


def loads(expression: Any) -> list[Any]:
    """The loads of an expression in order."""
    found: list[Any] = []
    tvm_ffi.structural_walk(expression, (tvm.ir.TensorLoad, found.append), order="post")
    return found


def same_load(load: Any, other: Any) -> bool:
    """Whether two loads are of one place of one buffer."""
    same = load.source.same_as(other.source)
    return bool(same and tvm_ffi.structural_equal(list(load.indices), list(other.indices)))


def reads(expression: Any, of: tirx.Buffer) -> bool:
    """Whether an expression reads a buffer."""
    return any(load.source.same_as(of) for load in loads(expression))


def combination(block: s_tir.SBlock) -> tuple[type, Any]:
    """How the block of a reduction combines elements, as a class of expressions, and an element.

    Raises:
        ValueError: it combines elements in another way than by a sum, a product, or the greatest or least.
    """
    value, own = block.body.value, block.body.buffer
    known = isinstance(value, _COMBINATIONS) and isinstance(value.a, tvm.ir.TensorLoad)
    if not known or not value.a.source.same_as(own) or reads(value.b, own):
        raise ValueError("the reduction is no sum, product, greatest or least")
    return type(value), value.b


def replaced(expression: Any, variables: Any, values: Any) -> Any:
    """The expression with each variable replaced by its value."""

    def value_of(found: Any) -> Any:
        for variable, value in zip(variables, values, strict=True):
            if found.same_as(variable):
                return value if not isinstance(value, int) else tirx.const(value, "int32")
        return found

    return mapped(expression, (tvm.ir.Var, value_of))
