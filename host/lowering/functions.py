"""Turns groups of nodes into TensorIR functions; equal groups share one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import te

from host.lowering.expressions.narrowing import as_half
from host.lowering.expressions.read_regions import with_whole_reads
from host.lowering.expressions.stage import Expression, Indices, Stage
from host.lowering.expressions.tvm_legalisation import write_with_tvm
from host.lowering.fusion import Group
from host.lowering.graph import Node, Value
from host.lowering.passes.halves.half_sums import OF_HALVES
from host.tensor_ir.extremes import EXTREMES_OF_ALL, EXTREMES_OF_WINDOWS
from host.tensor_ir.processor import for_cpu

_NAME_LENGTH = 60


@dataclass(frozen=True, eq=False)
class FusedCall:
    """One call of a function.

    Attributes:
        name: of the function.
        arguments: values it reads, in order.
        results: values it makes, in order.
        single: whether all of them lie in memory in single precision, which the function is written for.
    """

    name: str
    arguments: tuple[Value, ...]
    results: tuple[Value, ...]
    single: bool = False


@dataclass(eq=False)
class FunctionTable:
    """All functions of a model by name.

    Attributes:
        halves: values that lie in memory in half precision, with their type there.
        any_length: whether the functions are to serve other lengths too.
        on_gpu: whether the functions run on a GPU, where their operations do not run on the CPU beside it.
        functions: name to PrimFunc.
    """

    halves: Mapping[Value, str] = field(default_factory=dict)
    any_length: bool = False
    on_gpu: bool = False
    functions: dict[str, tvm.tirx.PrimFunc] = field(default_factory=dict)
    _by_key: dict[Any, tuple[str, tuple[int, ...]]] = field(default_factory=dict)

    def call(self, group: Group) -> FusedCall:
        """The call that computes a group, making its function if no equal group had one.

        Raises:
            NotOneExpressionError: the group is an operator without a tensor expression.
        """
        key, values = _key(group, self.halves)
        whole = group.nodes[0].spec.function
        if key not in self._by_key and whole is not None:
            name = self._fresh_name(group)
            function = whole(group.nodes[0]).with_attr("global_symbol", name)
            beside = self.on_gpu and group.nodes[0].spec.on_cpu
            self.functions[name] = for_cpu(function) if beside else function
            self._by_key[key] = (name, tuple(values.index(value) for value in group.nodes[0].inputs))
        if key not in self._by_key:
            stage = _written(group, self.halves, self.any_length)
            name = self._fresh_name(group)
            results = _results(stage, group, self.halves)
            function = with_whole_reads(te.create_prim_func([*stage.arguments.values(), *results]))
            for extremes in sorted({_extremes_of(node) for node in group.nodes} - {""}):
                function = function.with_attr(extremes, True)
            self.functions[name] = function.with_attr("global_symbol", name)
            order = tuple(values.index(value) for value in stage.arguments)
            self._by_key[key] = (name, order)
        name, order = self._by_key[key]
        arguments = tuple(values[i] for i in order)
        return FusedCall(name, arguments, group.results, single=whole is not None)

    def stored_type(self, value: Value) -> str:
        """Type of a value's elements in memory."""
        return self.halves.get(value, value.dtype)

    def _fresh_name(self, group: Group) -> str:
        parts = [node.op.removeprefix("relax.").replace(".", "_") for node in group.nodes]
        base = "fused_" + "_".join(parts)
        base = base[:_NAME_LENGTH].rstrip("_")
        name, count = base, 1
        while name in self.functions:
            name, count = f"{base}_{count}", count + 1
        return name


def _key(group: Group, halves: Mapping[Value, str]) -> tuple[Any, list[Value]]:
    """What makes two groups the same function, and the outside values in order of appearance."""
    inside = {value: (n, o) for n, node in enumerate(group.nodes) for o, value in enumerate(node.outputs)}
    outside: dict[Value, int] = {}
    description: list[Any] = []
    for node in group.nodes:
        reads: list[Any] = []
        for value in node.inputs:
            if value in inside:
                reads.append(inside[value])
                continue
            index = outside.setdefault(value, len(outside))
            number = value.data.tobytes() if value.data is not None and value.size == 1 else None
            reads.append((index, value.shape, value.dtype, number, value.is_constant))
        outputs = tuple((value.shape, value.dtype) for value in node.outputs)
        origin = node if node.template is not None else None
        description.append((node.op, tuple(reads), tuple(sorted(node.attrs.items())), outputs, origin))
    stored = tuple(halves.get(value, "") for value in (*outside, *group.results))
    return (tuple(description), stored), list(outside)


def _extremes_of(node: Node) -> str:
    """The attribute of a function that reduces to the largest or the smallest of floats; "" for others."""
    if not node.output.is_float:
        return ""
    if node.op == "pool" and node.attrs["kind"] == "max":
        return EXTREMES_OF_WINDOWS
    return EXTREMES_OF_ALL if node.op in ("max", "min") else ""


def _written(group: Group, halves: Mapping[Value, str], any_length: bool) -> Stage:
    stage = Stage(halves, any_length)
    for node in group.nodes:
        (node.spec.write or write_with_tvm)(stage, node)
        if node.spec.is_elementwise and node is not group.nodes[-1] and _read_twice(node, group):
            stage.share(node.output)
    return stage


def _read_twice(node: Node, group: Group) -> bool:
    return sum(reader.inputs.count(node.output) for reader in group.nodes) > 1


def _results(stage: Stage, group: Group, halves: Mapping[Value, str]) -> list[te.Tensor]:
    name = "elementwise" if group.anchor is None else "epilogue"
    results = []
    for value in group.results:
        if value in halves:
            in_halves = any(node.op in OF_HALVES for node in group.nodes)
            results.append(_narrowed(stage, value, halves[value], name, in_halves))
            continue
        tensor = stage.tensor(value, name)
        if any(tensor is argument for argument in stage.arguments.values()):
            tensor = _copied(stage, value, tensor)
        results.append(tensor)
    return results


def _narrowed(stage: Stage, value: Value, half: str, name: str, in_halves: bool) -> te.Tensor:
    """A result in half precision: the last thing that is done to each element, or its last sums with it."""

    def element(indices: Indices) -> Expression:
        single = stage.element(value, indices)
        return as_half(single, half) if in_halves else single.astype(half)

    return stage.compute(value.shape, element, name)


def _copied(stage: Stage, value: Value, tensor: te.Tensor) -> te.Tensor:
    """A function has to write its result even where that is one of its arguments."""
    return stage.compute(value.shape, lambda indices: tensor(*indices), "copy")
