"""Activations of a model in one block of memory whose layout is known before it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx

from host.build.memory.offsets import Buffer, place

# Of every tensor: a line of the cache, the widest vector, and what `ensure_zero_offset` moves without a copy.
ALIGNMENT = 64
# Of tensors of a GPU, as of a driver's allocations: a warp loads whole lines of 128 bytes.
GPU_ALIGNMENT = 256
# Sizes above this are those of an expression without a bound.
_UNBOUNDED = 1 << 60
# An attribute of a function: the greatest value of each of its symbolic sizes.
_BOUNDS = "tir_var_upper_bound"
# Gives another shape to the memory of a tensor.
_VIEW = "relax.reshape"


def entries_of(module: tvm.IRModule) -> tuple[str, ...]:
    """The relax functions of a module, which are what a runtime calls: `main` and those beside it."""
    names = (v.name_hint for v, function in module.functions.items() if isinstance(function, relax.Function))
    return tuple(sorted(names))


def plan_memory(
    module: tvm.IRModule, device: int = 0, once: bool = False, alignment: int = ALIGNMENT
) -> tvm.IRModule:
    """Place the intermediate tensors of each entry in one block, which is allocated once in a run.

    What an entry returns keeps memory of its own, since it outlives the run. So does a tensor whose size has
    no bound. Inputs, state and parameters are the caller's memory and never used for anything else. A kernel
    takes the address of a tensor and knows no offset, so a tensor that is not at the beginning of the block
    is replaced by a view that begins where its data does.

    Args:
        module: after calls of kernels got their outputs as arguments, with `relax.builtin.alloc_tensor`.
        device: of the virtual machine, whose tensors are placed; those of others stay as they are.
        once: whether tensors of one place, shape and type are one object, where `is_whole` holds. Making a
            tensor takes the machine as long as a small kernel runs, and a network that is written out over
            its steps has the same tensors in each.
        alignment: of every tensor, in bytes.
    """
    entries = entries_of(module)
    changed = {name: _with_places(module, module[name], device, once, alignment) for name in entries}
    functions = {
        variable: changed.get(variable.name_hint, function) for variable, function in module.functions.items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)


def is_whole(module: tvm.IRModule, device: int = 0) -> bool:
    """Whether the block of each entry has all its tensors but those that it returns.

    Nothing is freed then before the entry returns, and no tensor needs to be released after its last use.

    Args:
        module: as of `plan_memory`, before it is planned.
        device: as of `plan_memory`.
    """
    return all(_is_whole(module[name], device) for name in entries_of(module))


def _is_whole(entry: relax.Function, device: int) -> bool:
    if not isinstance(entry.body, relax.SeqExpr):
        return False
    uses = _uses_of(entry, device)
    placed = _planned(uses)
    kept = (v for v, size in uses.sizes.items() if size != 0 and v in uses.steps and v not in uses.returned)
    return uses.only_kernels and all(tensor in placed for tensor in kept)


def _with_places(
    module: tvm.IRModule, entry: relax.Function, device: int, once: bool, alignment: int
) -> relax.Function:
    body = entry.body
    if not isinstance(body, relax.SeqExpr):
        return entry
    uses = _uses_of(entry, device)
    planned = _planned(uses)
    if not planned:
        return entry
    layout = place(list(planned.values()), alignment)
    offsets = dict(zip(planned, layout.offsets, strict=True))
    repeated = uses.written_alone() if once else frozenset()
    writer = _Writer(relax.BlockBuilder(module), layout.size_bytes, offsets, device, repeated)
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


@dataclass(frozen=True)
class _Uses:
    """The tensors that an entry allocates on a device.

    Attributes:
        sizes: of each in bytes; None where they are not known.
        steps: at which it is used.
        returned: those whose memory the entry gives back.
        only_kernels: whether all else that the entry does is to call kernels and to view tensors.
    """

    sizes: Mapping[relax.Var, int | None]
    steps: Mapping[relax.Var, list[int]]
    returned: frozenset[relax.Var]
    only_kernels: bool

    def written_alone(self) -> frozenset[relax.Var]:
        """Tensors that are the one result of their kernel.

        Whoever watches a run knows the results of a kernel by tensors that nothing has been written to, or,
        where there are none, by its last argument.
        """
        first = Counter(steps[0] for steps in self.steps.values())
        return frozenset(tensor for tensor, steps in self.steps.items() if first[steps[0]] == 1)


def _uses_of(main: relax.Function, device: int) -> _Uses:
    """How a function uses its tensors.

    A value may have the memory of any tensor that it is made from, except that of a kernel, which returns
    nothing.
    """
    bounds = bounds_of(main)
    sizes: dict[relax.Var, int | None] = {}
    steps: dict[relax.Var, list[int]] = {}
    memory: dict[relax.Var, frozenset[relax.Var]] = {}
    step, only_kernels = 0, True
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
                only_kernels = only_kernels and _makes_no_tensor(binding.value)
    returned = _memory_of(main.body.body, memory)
    return _Uses(sizes, steps, returned, only_kernels)


def _planned(uses: _Uses) -> dict[relax.Var, Buffer]:
    """The tensors that get a place in the block, with the first and the last step at which they are used."""
    return {
        tensor: Buffer(size, uses.steps[tensor][0], uses.steps[tensor][-1])
        for tensor, size in uses.sizes.items()
        if size and size < _UNBOUNDED and tensor in uses.steps and tensor not in uses.returned
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


def _makes_no_tensor(value: Any) -> bool:
    """Whether a value that is no allocation is a view, a tuple, or another name of a tensor."""
    if isinstance(value, relax.Call):
        return getattr(value.op, "name", "") == _VIEW
    return not isinstance(value, relax.If | relax.SeqExpr | relax.Function)


def _fixed_sizes(shape: Any) -> tuple[int, ...] | None:
    """The sizes of a shape, None where one is not known before the run."""
    if not isinstance(shape, relax.ShapeExpr):
        return None
    known = all(isinstance(size, tirx.IntImm) for size in shape.values)
    return tuple(int(size) for size in shape.values) if known else None


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
    repeated: frozenset[relax.Var]
    storage: relax.Var | None = None
    made: dict[Any, relax.Var] = field(default_factory=dict)

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
            sizes = _fixed_sizes(shape) if binding.var in self.repeated else None
            if sizes is not None:
                key = (offset, sizes, str(dtype.value))
                if key in self.made:
                    yield relax.VarBinding(binding.var, self.made[key])
                    continue
                self.made[key] = binding.var
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
