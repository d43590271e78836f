"""A model for a GPU some of whose functions run on the CPU: where its tensors lie, and what is copied.

A function has all of its tensors on its own processor. A tensor that a function of the other one reads is
copied once, in front of the first that does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx

from host.build.memory.plan import entries_of
from host.errors import BuildError
from host.tensor_ir.processor import is_for_cpu

# Numbers of the devices of a virtual machine for a GPU; the CPU is the last one.
GPU, CPU = 0, 1
# Copies a tensor into another one. To and from memory that is not pinned the driver returns when the copy has
# been made, or the source may change (CUDA Driver API, "API synchronization behavior").
COPY = "runtime.TVMTensorCopyFromTo"


@dataclass(frozen=True)
class Crossing:
    """A tensor that is copied in every run.

    Attributes:
        kernel: that reads the copy, the first one of several.
        to_cpu: whether it comes from the GPU.
        bytes: its size.
    """

    kernel: str
    to_cpu: bool
    bytes: int


def functions_for_cpu(module: tvm.IRModule) -> frozenset[str]:
    """Names of the functions of a module that run on the CPU."""
    return frozenset(
        variable.name_hint
        for variable, function in module.functions.items()
        if isinstance(function, tirx.PrimFunc) and is_for_cpu(function)
    )


def with_crossings(module: tvm.IRModule) -> tuple[tvm.IRModule, tuple[Crossing, ...]]:
    """Place the tensors of a module for a GPU on the processors of the functions that write them.

    Args:
        module: after calls of kernels got their outputs as arguments, with `relax.builtin.alloc_tensor`.

    Returns:
        The module with copies, and these in the order of their calls.

    Raises:
        BuildError: a function with branches calls functions of the CPU.
    """
    on_cpu = functions_for_cpu(module)
    if not on_cpu:
        return module, ()
    functions = dict(module.functions.items())
    crossings: list[Crossing] = []
    for name in entries_of(module):
        entry = module[name]
        writer = _Writer(relax.BlockBuilder(module), on_cpu, crossings)
        if not _calls_any(entry, on_cpu):
            continue
        if not isinstance(entry.body, relax.SeqExpr) or _has_branches(entry):
            raise BuildError(f"{name} has branches around functions of the CPU; deploy with --processor cpu")
        writer.homes = _homes(entry, on_cpu)
        blocks = [relax.BindingBlock(list(writer.rewritten(block.bindings))) for block in entry.body.blocks]
        functions[module.get_global_var(name)] = relax.Function(
            entry.params, relax.SeqExpr(blocks, entry.body.body), entry.ret_ty, entry.is_pure, entry.attrs
        )
    return tvm.IRModule(functions, attrs=module.attrs), tuple(crossings)


def _calls_any(entry: relax.Function, names: frozenset[str]) -> bool:
    found = False

    def visit(node: Any) -> None:
        nonlocal found
        found = found or (isinstance(node, tvm.ir.GlobalVar) and node.name_hint in names)

    relax.analysis.post_order_visit(entry.body, visit)
    return found


def _has_branches(entry: relax.Function) -> bool:
    found = False

    def visit(node: Any) -> None:
        nonlocal found
        found = found or isinstance(node, relax.If)

    relax.analysis.post_order_visit(entry.body, visit)
    return found


def _is_allocation(value: Any) -> bool:
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") == "relax.builtin.alloc_tensor"


def _is_kernel_call(value: Any) -> bool:
    return isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar)


def _homes(entry: relax.Function, on_cpu: frozenset[str]) -> dict[relax.Var, int]:
    """The device of each tensor that is allocated: that of the function which writes it first."""
    fresh: set[relax.Var] = set()
    homes: dict[relax.Var, int] = {}
    for block in entry.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if _is_allocation(value):
                fresh.add(binding.var)
            elif _is_kernel_call(value):
                device = CPU if value.op.name_hint in on_cpu else GPU
                written = [argument for argument in value.args if argument in fresh]
                homes.update(dict.fromkeys(written, device))
                fresh.difference_update(written)
    return homes


@dataclass
class _Writer:
    """Writes the bindings of a function with copies between its calls.

    Attributes:
        homes: device of the tensors that are allocated.
        places: device of each variable, where it is the CPU; elements of tuples by the tuple's variable.
        copies: of a variable on a device.
    """

    builder: relax.BlockBuilder
    on_cpu: frozenset[str]
    crossings: list[Crossing]
    homes: Mapping[relax.Var, int] = field(default_factory=dict)
    places: dict[relax.Var, Any] = field(default_factory=dict)
    copies: dict[tuple[relax.Var, int], relax.Var] = field(default_factory=dict)

    def rewritten(self, bindings: list[Any]) -> Iterator[Any]:
        """The bindings with tensors on their devices, and copies in front of calls that need them."""
        for binding in bindings:
            value = binding.value
            if _is_allocation(value):
                device = self.homes.get(binding.var, GPU)
                self.places[binding.var] = device
                value = relax.op.builtin.alloc_tensor(*value.args[:2], device) if device != GPU else value
                yield relax.VarBinding(binding.var, self.builder.normalize(value))
            elif _is_kernel_call(value):
                yield from self._call(binding)
            else:
                self.places[binding.var] = self._place(value)
                yield binding

    def _call(self, binding: Any) -> Iterator[Any]:
        call = binding.value
        name = call.op.name_hint
        device = CPU if name in self.on_cpu else GPU
        arguments = []
        for argument in call.args:
            if not isinstance(argument.ty, relax.TensorType) or self._place(argument) == device:
                arguments.append(argument)
                continue
            key = (argument, device)
            if key not in self.copies:
                yield from self._copy(name, argument, device)
            arguments.append(self.copies[key])
        yield relax.VarBinding(
            binding.var, self.builder.normalize(relax.Call(call.op, arguments, call.attrs))
        )

    def _copy(self, kernel: str, source: relax.Var, device: int) -> Iterator[Any]:
        shape, dtype = source.ty.shape, str(source.ty.dtype)
        allocated = self.builder.normalize(relax.op.builtin.alloc_tensor(shape, dtype, device))
        copy = relax.Var(f"{source.name}_{'cpu' if device == CPU else 'gpu'}", allocated.ty)
        yield relax.VarBinding(copy, allocated)
        call = self.builder.normalize(
            relax.Call(relax.ExternFunc(COPY), [source, copy], None, [relax.AnyType()])
        )
        yield relax.VarBinding(relax.Var("_", call.ty), call)
        self.places[copy] = device
        self.copies[source, device] = copy
        self.crossings.append(Crossing(kernel, device == CPU, _bytes(shape, dtype)))

    def _place(self, value: Any) -> Any:
        """The device of a value; of a tuple, those of its elements."""
        if isinstance(value, relax.Var):
            return self.places.get(value, GPU)
        if isinstance(value, relax.Tuple):
            return tuple(self._place(part) for part in value.fields)
        if isinstance(value, relax.TupleGetItem):
            places = self._place(value.tuple_value)
            return places[value.index] if isinstance(places, tuple) else places
        if isinstance(value, relax.Call) and value.args and isinstance(value.args[0], relax.Var):
            # A view, which lies where its source does.
            return self._place(value.args[0])
        return GPU


def _bytes(shape: Any, dtype: str) -> int:
    kind = tvm_ffi.dtype(dtype)
    sizes = [int(size) if isinstance(size, tirx.IntImm) else 1 for size in shape.values]
    element_bytes: int = (kind.bits * kind.lanes + 7) // 8
    return prod(sizes) * element_bytes
