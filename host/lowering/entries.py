"""Several functions that a runtime calls, in one module: they share kernels and parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx

from host.lowering.sharing.equal_arrays import EqualArrays
from host.lowering.tasks import KernelLayers, layers_by_kernel, renamed
from host.model import CallGraph, Layer

MAIN = "main"


@dataclass(frozen=True, eq=False)
class Entry:
    """A function that a runtime calls, lowered by itself.

    Attributes:
        name: in the module that is made of all entries.
        module: relax module; its `main` takes the interface and then the parameters.
        parameters: values of the parameters.
        calls: of its kernels in one run.
        weights_bytes: of the parameters, as much as one run reads.
    """

    name: str
    module: tvm.IRModule
    parameters: tuple[np.ndarray, ...]
    calls: CallGraph
    weights_bytes: int = 0


def merged(
    entries: Sequence[Entry],
) -> tuple[tvm.IRModule, tuple[np.ndarray, ...], KernelLayers, CallGraph]:
    """All entries in one module, their parameters, the kernels' layers, and the calls of the first entry.

    Kernels that are structurally equal become one; others that have the same name are renamed. Parameters of
    the same content are stored once. Every entry takes all parameters, in the same order, so that a runtime
    binds them without knowing which entry reads which.

    Args:
        entries: lowered for the same target; the first keeps the names of its kernels.
    """
    known = EqualArrays()
    places = [_places(known, entry.parameters) for entry in entries]
    functions: dict[str, tirx.PrimFunc] = {}
    names_of = [_share_kernels(entry.module, functions) for entry in entries]
    builder = relax.BlockBuilder()
    variables = {name: builder.add_func(function, name) for name, function in functions.items()}
    module = builder.get()
    for entry, names, own in zip(entries, names_of, places, strict=True):
        writer = _Writer(builder, {name: variables[new] for name, new in names.items()})
        parameters = _parameters(entry, own, known.arrays)
        module[entry.name] = writer.written(entry.module[MAIN], entry.name, parameters)
    layers: dict[str, set[Layer]] = {}
    graphs = [renamed(entry.calls, names) for entry, names in zip(entries, names_of, strict=True)]
    for graph in graphs:
        for name, those in layers_by_kernel(graph).items():
            layers.setdefault(name, set()).update(those)
    kernel_layers = {name: tuple(sorted(those)) for name, those in layers.items()}
    return module, tuple(known.arrays), kernel_layers, graphs[0]


def _places(known: EqualArrays, arrays: Sequence[np.ndarray]) -> list[int]:
    """An index for each parameter of one entry, in the list of those of all entries.

    No two of them share one: each is a parameter of its own of the entry.
    """
    before = len(known.arrays)
    found: list[int] = []
    for array in arrays:
        found.append(known.place(array, lambda index: index < before and index not in found))
    return found


def _share_kernels(module: tvm.IRModule, known: dict[str, tirx.PrimFunc]) -> dict[str, str]:
    """The name in `known` of each kernel of a module; those that are new are added to it."""
    by_hash: dict[int, list[str]] = {}
    for name, function in known.items():
        by_hash.setdefault(_hash(function), []).append(name)
    names: dict[str, str] = {}
    for variable, function in module.functions.items():
        if not isinstance(function, tirx.PrimFunc):
            continue
        name = variable.name_hint
        equal = (one for one in by_hash.get(_hash(function), ()) if _equal(known[one], function))
        names[name] = next(equal, "") or _unused(name, known)
        if names[name] not in known:
            named = "global_symbol" in (function.attrs or {})
            known[names[name]] = function.with_attr("global_symbol", names[name]) if named else function
    return names


def _anonymous(function: tirx.PrimFunc) -> tirx.PrimFunc:
    return function.without_attr("global_symbol")


def _hash(function: tirx.PrimFunc) -> int:
    return int(tvm_ffi.structural_hash(_anonymous(function)))


def _equal(one: tirx.PrimFunc, other: tirx.PrimFunc) -> bool:
    return bool(tvm_ffi.structural_equal(_anonymous(one), _anonymous(other)))


def _unused(name: str, known: Mapping[str, Any]) -> str:
    number, free = 0, name
    while free in known:
        number += 1
        free = f"{name}_{number}"
    return free


def _parameters(entry: Entry, own: Sequence[int], arrays: Sequence[np.ndarray]) -> list[relax.Var]:
    """The interface of an entry and then a variable for each parameter of all, its own where it reads it."""
    given = list(entry.module[MAIN].params)
    interface = given[: len(given) - len(own)]
    variables = dict(zip(own, given[len(interface) :], strict=True))
    return interface + [
        variables.get(index, relax.Var(f"other{index}", relax.TensorType(array.shape, str(array.dtype))))
        for index, array in enumerate(arrays)
    ]


class _Writer:
    """Rewrites a lowered function with other names of kernels and other parameters."""

    def __init__(self, builder: relax.BlockBuilder, kernels: Mapping[str, tvm.ir.GlobalVar]) -> None:
        self._builder = builder
        self._kernels = kernels

    def written(self, function: relax.Function, name: str, parameters: list[relax.Var]) -> relax.Function:
        """The function, under another name."""
        body = function.body
        blocks = []
        for block in body.blocks:
            bindings = [self._binding(binding) for binding in block.bindings]
            blocks.append(type(block)(bindings))
        changed = relax.Function(
            parameters, relax.SeqExpr(blocks, body.body), function.ret_ty, function.is_pure, function.attrs
        )
        return changed.with_attr("global_symbol", name)

    def _binding(self, binding: relax.VarBinding) -> relax.VarBinding:
        value = binding.value
        if not isinstance(value, relax.Call) or not any(
            isinstance(argument, tvm.ir.GlobalVar) for argument in value.args
        ):
            return binding
        arguments = [
            self._kernels[argument.name_hint] if isinstance(argument, tvm.ir.GlobalVar) else argument
            for argument in value.args
        ]
        call = relax.Call(value.op, arguments, value.attrs, value.ty_args)
        return relax.VarBinding(binding.var, self._builder.normalize(call))
