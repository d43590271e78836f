"""The calls of a lowered module, with the layers that each of them computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import tvm
from tvm import relax

from host.model import CallGraph, KernelCall, Layer

# Layers of a model's file that each kernel computes.
KernelLayers = Mapping[str, tuple[Layer, ...]]


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
