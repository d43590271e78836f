"""The calls of a lowered module, and its distinct functions with their weight and work."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx

from host.model import CallGraph, KernelCall, Layer, Task

# Layers of a model's file that each kernel computes.
KernelLayers = Mapping[str, tuple[Layer, ...]]
_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Max, tirx.Min)
_FUNCTION_NAMES = "exp log tanh erf sqrt rsqrt pow sin cos tan sigmoid"
_FUNCTIONS = frozenset(f"tirx.{name}" for name in _FUNCTION_NAMES.split())
# Operations of one call of a function that is not an arithmetic node of TensorIR (exp and others
# are written out as polynomials, so that few are left).
_CALL_FLOPS = 10.0


def workload_hash(function: tirx.PrimFunc) -> str:
    """Structural hash of a function without its name: equal functions of any model have the same."""
    return f"{tvm_ffi.structural_hash(function.without_attr('global_symbol')) & (2**64 - 1):016x}"


def make_tasks(
    module: tvm.IRModule,
    entries: Sequence[str] = (),
    layers: Mapping[str, tuple[Layer, ...]] | None = None,
    weights_bytes: int = 0,
) -> tuple[Task, ...]:
    """Every function that `main` calls, in the order of first call, and then those that only others call.

    Args:
        module: lowered.
        entries: functions beside `main`. A kernel that `main` does not call is weighted by its calls in one
            run of the first of them that calls it.
        layers: of the model's file, by kernel.
        weights_bytes: that one run of `main` reads; 0 where they are not known.
    """
    weights: dict[str, int] = {}
    for entry in ("main", *entries):
        calls = calls_of(module[entry])
        weights.update((name, count) for name, count in calls.items() if name not in weights)
    return tuple(
        Task(
            name,
            module[name],
            weight,
            workload_hash(module[name]),
            flops(module[name]),
            (layers or {}).get(name, ()),
            weights_bytes,
        )
        for name, weight in weights.items()
    )


def calls_of(function: relax.Function) -> collections.Counter[str]:
    """How often a relax function calls each TensorIR function."""
    found: collections.Counter[str] = collections.Counter()

    def visit(expression: object) -> None:
        if isinstance(expression, relax.Call) and _is_call_tir(expression):
            found[expression.args[0].name_hint] += 1

    relax.analysis.post_order_visit(function.body, visit)
    return found


def _is_call_tir(call: relax.Call) -> bool:
    return isinstance(call.op, tvm.ir.Op) and call.op.name == "relax.call_tir"


def flops(function: tirx.PrimFunc) -> float:
    """Floating-point operations of one call; a multiply-add counts 2.

    Indices, comparisons and the initial values of reductions do not count.
    """
    return _statement_flops(function.body)


def _statement_flops(statement: Any) -> float:
    if isinstance(statement, tirx.For):
        # An extent that depends on other loops (windows of adaptive pooling) counts once.
        extent = int(statement.extent) if isinstance(statement.extent, tirx.IntImm) else 1
        return extent * _statement_flops(statement.body)
    if isinstance(statement, tirx.SeqStmt):
        return sum(_statement_flops(part) for part in statement.seq)
    if isinstance(statement, s_tir.SBlockRealize):
        return _statement_flops(statement.block.body)
    if isinstance(statement, tirx.BufferStore):
        return _expression_flops(statement.value)
    if isinstance(statement, tirx.IfThenElse):
        other = 0.0 if statement.else_case is None else _statement_flops(statement.else_case)
        return max(_statement_flops(statement.then_case), other)
    return _statement_flops(statement.body) if hasattr(statement, "body") else 0.0


def _expression_flops(expression: Any) -> float:
    """Arithmetic on floats in an expression tree; a value named by Let counts once."""
    total = 0.0
    pending = [expression]
    while pending:
        part = pending.pop()
        if isinstance(part, _ARITHMETIC):
            total += 1.0 if str(part.ty.dtype).startswith("float") else 0.0
            pending += [part.a, part.b]
        elif isinstance(part, tirx.Let):
            pending += [part.value, part.body]
        elif isinstance(part, tirx.Select):
            # One of the two is used; the choice by position of an unrolled loop costs nothing.
            total += max(_expression_flops(part.true_value), _expression_flops(part.false_value))
        elif isinstance(part, tirx.Cast):
            pending.append(part.value)
        elif isinstance(part, tvm.ir.Call):
            total += _CALL_FLOPS if part.op.name in _FUNCTIONS else 0.0
            pending += list(part.args)
    return total


def call_graph(module: tvm.IRModule, layers: Mapping[str, tuple[Layer, ...]], inputs: int) -> CallGraph:
    """The calls of `main`.

    Args:
        module: with all operators as calls of functions.
        layers: what a variable is computed for, by its name.
        inputs: how many of the first parameters are the model's; the rest are weights.
    """
    main = module["main"]
    sources: dict[Any, tuple[int, ...]] = {
        variable: (-1 - index,) for index, variable in enumerate(main.params) if index < inputs
    }
    calls: list[KernelCall] = []
    for block in main.body.blocks:
        for binding in block.bindings:
            value, reads = binding.value, _read(binding.value, sources)
            if isinstance(value, relax.Call) and value.args and isinstance(value.args[0], tvm.ir.GlobalVar):
                own = layers.get(binding.var.name, ())
                calls.append(KernelCall(value.args[0].name_hint, own, reads))
                reads = (len(calls) - 1,)
            sources[binding.var] = reads
    return CallGraph(tuple(calls), _read(main.body.body, sources))


def layers_by_kernel(graph: CallGraph) -> KernelLayers:
    """The layers of each kernel over all its calls, in their order; kernels without any are left out."""
    found: dict[str, set[Layer]] = {}
    for call in graph.calls:
        found.setdefault(call.kernel, set()).update(call.layers)
    return {name: tuple(sorted(those)) for name, those in found.items() if those}


def renamed(graph: CallGraph, names: Mapping[str, str]) -> CallGraph:
    """The graph with other names of its kernels."""
    return replace(graph, calls=tuple(replace(call, kernel=names[call.kernel]) for call in graph.calls))


def _read(expression: Any, sources: Mapping[Any, tuple[int, ...]]) -> tuple[int, ...]:
    """What the variables of an expression are made of, each once, in the order in which they are read."""
    found: list[int] = []
    pending = [expression]
    while pending:
        part = pending.pop()
        if isinstance(part, relax.Call):
            pending += reversed(part.args)
        elif isinstance(part, relax.Tuple):
            pending += reversed(part.fields)
        elif isinstance(part, relax.TupleGetItem):
            pending.append(part.tuple_value)
        elif isinstance(part, relax.Var):
            found += sources.get(part, ())
    return tuple(dict.fromkeys(found))
