"""Activations of a model in one block of memory whose layout is known before it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx

from host.build.memory.offsets import Buffer, place

# Of every tensor: a line of the cache, the widest vector, and what `ensure_zero_offset` moves without a copy.
ALIGNMENT = 64
# Sizes above this are those of an expression without a bound.
_UNBOUNDED = 1 << 60
# An attribute of a function: the greatest value of each of its symbolic sizes.
_BOUNDS = "tir_var_upper_bound"


def entries_of(module: tvm.IRModule) -> tuple[str, ...]:
    """The relax functions of a module, which are what a runtime calls: `main` and those beside it."""
    names = (v.name_hint for v, function in module.functions.items() if isinstance(function, relax.Function))
    return tuple(sorted(names))


def plan_memory(module: tvm.IRModule, device: int = 0) -> tvm.IRModule:
    """Place the intermediate tensors of each entry in one block, which is allocated once in a run.

    What an entry returns keeps memory of its own, since it outlives the run. So does a tensor whose size has
    no bound. Inputs, state and parameters are the caller's memory and never used for anything else. A kernel
    takes the address of a tensor and knows no offset, so a tensor that is not at the beginning of the block
    is replaced by a view that begins where its data does.

    Args:
        module: after calls of kernels got their outputs as arguments, with `relax.builtin.alloc_tensor`.
        device: of the virtual machine, whose tensors are placed; those of others stay as they are.
    """
    changed = {name: _with_places(module, module[name], device) for name in entries_of(module)}
    functions = {
        variable: changed.get(variable.name_hint, function) for variable, function in module.functions.items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)


def _with_places(module: tvm.IRModule, entry: relax.Function, device: int) -> relax.Function:
    body = entry.body
    planned = _planned(entry, device) if isinstance(body, relax.SeqExpr) else {}
    if not planned:
        return entry
    layout = place(list(planned.values()), ALIGNMENT)
    offsets = dict(zip(planned, layout.offsets, strict=True))
    writer = _Writer(relax.BlockBuilder(module), layout.size_bytes, offsets, device)
    blocks = [relax.BindingBlock(list(writer.rewritten(block.bindings))) for block in body.blocks]
    return relax.Function(
        entry.params, relax.SeqExpr(blocks, body.body), entry.ret_ty, entry.is_pure, entry.attrs
    )


def planned_bytes(module: tvm.IRModule) -> int:
    """Bytes of the blocks that all entries take for their intermediate tensors, after they were planned.

    The runtime keeps the block of each entry for its next run, so they count together.
    """
    total = 0

    def visit(node: Any) -> None:
        nonlocal total
        if isinstance(node, relax.Call) and getattr(node.op, "name", "") == "relax.memory.alloc_storage":
            total += prod(int(size) for size in node.args[0].values)

    for name in entries_of(module):
        relax.analysis.post_order_visit(module[name].body, visit)
    return total


def _planned(main: relax.Function, device: int) -> dict[relax.Var, Buffer]:
    """The tensors of a function that get a place in the block, with the steps at which they are used.

    A value may have the memory of any tensor that it is made from, except that of a kernel, which returns
    nothing.
    """
    bounds = bounds_of(main)
    sizes: dict[relax.Var, int | None] = {}
    steps: dict[relax.Var, list[int]] = {}
    memory: dict[relax.Var, frozenset[relax.Var]] = {}
    step = 0
    for block in main.body.blocks:
        for binding in block.bindings:
            step += 1
            if _is_allocation(binding.value, device):
                sizes[binding.var] = most_bytes(
                    binding.value.args[0], str(binding.value.args[1].value), bounds
                )
                memory[binding.var] = frozenset((binding.var,))
                continue
            read = _memory_of(binding.value, memory)
            for tensor in read:
                steps.setdefault(tensor, []).append(step)
            if not _is_kernel_call(binding.value):
                memory[binding.var] = read
    returned = _memory_of(main.body.body, memory)
    return {
        tensor: Buffer(size, steps[tensor][0], steps[tensor][-1])
        for tensor, size in sizes.items()
        if size and size < _UNBOUNDED and tensor in steps and tensor not in returned
    }


def _memory_of(expression: Any, memory: Mapping[relax.Var, frozenset[relax.Var]]) -> frozenset[relax.Var]:
    """The tensors whose memory an expression reads, writes or gives."""
    found: set[relax.Var] = set()

    def visit(node: Any) -> None:
        if isinstance(node, relax.Var):
            found.update(memory.get(node, ()))

    relax.analysis.post_order_visit(expression, visit)
    return frozenset(found)


def _is_allocation(value: Any, device: int) -> bool:
    if not isinstance(value, relax.Call) or getattr(value.op, "name", "") != "relax.builtin.alloc_tensor":
        return False
    return int(value.args[2].value) == device


def _is_kernel_call(value: Any) -> bool:
    return isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar)


def bounds_of(main: relax.Function) -> dict[str, int]:
    """The greatest value of each symbolic size of an entry, by its name."""
    attributes = main.attrs or {}
    return {str(name): int(value) for name, value in dict(attributes.get(_BOUNDS) or {}).items()}


def most_bytes(shape: Any, name: str, bounds: Mapping[str, int]) -> int | None:
    """Bytes of a tensor at the greatest sizes; None where they are not known.

    Args:
        shape: of the tensor.
        name: of its element type.
        bounds: greatest value of each symbolic size.
    """
    dtype = tvm_ffi.dtype(name)
    if not isinstance(shape, relax.ShapeExpr):
        return None
    analyser = tvm.sym.Analyzer()
    elements = tirx.IntImm("int64", 1)
    for size in shape.values:
        for variable in tirx.analysis.undefined_vars(size, []) if not isinstance(size, tirx.IntImm) else []:
            if variable.name not in bounds:
                return None
            analyser.update(variable, tvm.sym.ConstIntBound(0, bounds[variable.name]), override=True)
        elements = elements * size
    most = int(analyser.const_int_bound(elements).max_value)
    element_bytes: int = (dtype.bits * dtype.lanes + 7) // 8
    return most * element_bytes


@dataclass
class _Writer:
    """Writes the bindings of the planned function."""

    builder: relax.BlockBuilder
    size_bytes: int
    offsets: Mapping[relax.Var, int]
    device: int
    storage: relax.Var | None = None

    def rewritten(self, bindings: list[Any]) -> Iterator[Any]:
        """Bindings with planned tensors in the block, which is taken before the first of them."""
        for binding in bindings:
            if binding.var not in self.offsets:
                yield binding
                continue
            shape, dtype = binding.value.args[0], binding.value.args[1]
            if self.storage is None:
                block = relax.op.memory.alloc_storage(
                    relax.ShapeExpr([self.size_bytes]), self.device, "global", "uint8"
                )
                self.storage, made = self._bound("activations", block)
                yield made
            offset = self.offsets[binding.var]
            tensor = relax.op.memory.alloc_tensor(self.storage, offset, shape, dtype)
            if offset == 0:
                yield relax.VarBinding(binding.var, self.builder.normalize(tensor))
                continue
            placed, made = self._bound(f"{binding.var.name}_at", tensor)
            yield made
            yield relax.VarBinding(
                binding.var, self.builder.normalize(relax.op.memory.ensure_zero_offset(placed))
            )

    def _bound(self, name: str, call: relax.Call) -> tuple[relax.Var, relax.VarBinding]:
        value = self.builder.normalize(call)
        variable = relax.Var(name, value.ty)
        return variable, relax.VarBinding(variable, value)
