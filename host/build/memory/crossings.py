"""A model for a GPU, some of whose functions may run on the CPU: where its tensors lie, and what crosses.

A function has all of its tensors on its own processor. A tensor that a function of the other one reads
crosses once, in front of the first that does. What crosses, and the outputs of the model, lie in memory that
both processors use, where the driver says that the board has one memory; then nothing is copied. Elsewhere
the same calls copy. The agent has the functions for it (device_agent/execute/shared_memory.py).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax, tirx

from host.build.memory.plan import bounds_of, entries_of, most_bytes
from host.errors import BuildError
from host.tensor_ir.processor import is_for_cpu

# Operators that give another shape to the memory of a tensor.
_VIEWS = ("relax.reshape", "relax.memory.view", "relax.memory.ensure_zero_offset")
# Numbers of the devices of a virtual machine for a GPU; the CPU is the last one.
GPU, CPU = 0, 1
# A tensor of the GPU that the CPU uses too; the tensor of the CPU to it; and making what one processor has
# written readable for the other one, which copies where they do not share their memory.
TENSOR, BESIDE, CROSS = "vm.builtin.edgetlm_tensor", "vm.builtin.edgetlm_beside", "edgetlm.cross"


@dataclass(frozen=True)
class Crossing:
    """A tensor that crosses in every run: it is copied where the processors do not share their memory.

    Attributes:
        kernel: that reads it on the other processor, the first one of several.
        to_cpu: whether it comes from the GPU.
        bytes: its size at the greatest length; 0 where that has no bound.
        between: whether it is neither an input nor an output of the function.
    """

    kernel: str
    to_cpu: bool
    bytes: int
    between: bool

    @property
    def taken_bytes(self) -> int:
        """Memory that it takes beside inputs and outputs, where each processor has memory of its own."""
        return self.bytes * (2 if self.between else 1)


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
        The module with crossings, and these in the order of their calls.

    Raises:
        BuildError: a function with branches calls functions of the CPU.
    """
    on_cpu = functions_for_cpu(module)
    functions = dict(module.functions.items())
    crossings: list[Crossing] = []
    for name in entries_of(module):
        entry = module[name]
        if not isinstance(entry.body, relax.SeqExpr) or _has_branches(entry):
            if _calls_any(entry, on_cpu):
                raise BuildError(
                    f"{name} has branches around functions of the CPU; deploy with --processor cpu"
                )
            continue
        tensors = Tensors.of(entry, on_cpu)
        writer = _Writer(relax.BlockBuilder(module), on_cpu, crossings, tensors, bounds_of(entry))
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


@dataclass(frozen=True)
class Tensors:
    """Where the tensors of a function lie.

    Attributes:
        homes: device of each tensor that is allocated: that of the function which writes it first.
        views: the tensor that another one is a view of, or another name of, and the value that makes it.
        shared: tensors that are allocated and that the other processor uses too: outputs, and what crosses.
        returned: tensors whose memory the function gives back.
    """

    homes: Mapping[relax.Var, int]
    views: Mapping[relax.Var, tuple[relax.Var, Any]]
    shared: frozenset[relax.Var]
    returned: frozenset[relax.Var]

    @staticmethod
    def of(entry: relax.Function, on_cpu: frozenset[str]) -> Tensors:
        """Those of a function without branches, some of whose calls may be of the CPU."""
        fresh: set[relax.Var] = set()
        homes: dict[relax.Var, int] = {}
        views: dict[relax.Var, tuple[relax.Var, Any]] = {}
        tuples: dict[relax.Var, tuple[Any, ...]] = {}
        shared: set[relax.Var] = set()

        def root(variable: relax.Var) -> relax.Var:
            while variable in views:
                variable = views[variable][0]
            return variable

        for binding in (one for block in entry.body.blocks for one in block.bindings):
            value = binding.value
            if _is_allocation(value):
                fresh.add(binding.var)
            elif _is_kernel_call(value):
                device = CPU if value.op.name_hint in on_cpu else GPU
                roots = [root(one) for one in value.args if isinstance(one, relax.Var)]
                written = [one for one in roots if one in fresh]
                homes.update(dict.fromkeys(written, device))
                fresh.difference_update(written)
                shared.update(one for one in roots if homes.get(one, device) != device)
            elif isinstance(value, relax.Tuple):
                tuples[binding.var] = tuple(value.fields)
            elif isinstance(value, relax.TupleGetItem):
                fields = tuples.get(value.tuple_value)
                if fields is not None and isinstance(fields[value.index], relax.Var):
                    views[binding.var] = (fields[value.index], fields[value.index])
            else:
                source = value if isinstance(value, relax.Var) else _viewed(value)
                if source is not None:
                    views[binding.var] = (source, value)
        result = entry.body.body
        given = tuples.get(result, (result,)) if isinstance(result, relax.Var) else (result,)
        returned = {
            root(part)
            for one in given
            for part in (one.fields if isinstance(one, relax.Tuple) else (one,))
            if isinstance(part, relax.Var)
        }
        shared.update(one for one in returned if homes.get(one) == GPU)
        return Tensors(homes, views, frozenset(shared), frozenset(returned))


def _viewed(value: Any) -> relax.Var | None:
    """The tensor that a value is a view of; None where it is none."""
    if not isinstance(value, relax.Call) or not value.args or not isinstance(value.args[0], relax.Var):
        return None
    return value.args[0] if getattr(value.op, "name", "") in _VIEWS else None


@dataclass
class _Writer:
    """Writes the bindings of a function with crossings between its calls.

    Attributes:
        tensors: of the function.
        bounds: greatest values of its symbolic sizes.
        others: tensor of the other processor to a tensor.
        crossed: tensors that have crossed.
    """

    builder: relax.BlockBuilder
    on_cpu: frozenset[str]
    crossings: list[Crossing]
    tensors: Tensors
    bounds: Mapping[str, int]
    others: dict[relax.Var, relax.Var] = field(default_factory=dict)
    crossed: set[relax.Var] = field(default_factory=set)

    def rewritten(self, bindings: list[Any]) -> Iterator[Any]:
        """The bindings with tensors on their devices, and crossings in front of calls that need them."""
        for binding in bindings:
            value = binding.value
            if _is_allocation(value):
                yield from self._allocated(binding.var, *value.args[:2])
            elif _is_kernel_call(value):
                yield from self._call(binding)
            else:
                yield binding

    def _allocated(self, variable: relax.Var, shape: Any, dtype: Any) -> Iterator[Any]:
        home = self.tensors.homes.get(variable, GPU)
        if variable not in self.tensors.shared:
            value = relax.op.builtin.alloc_tensor(shape, dtype, home)
            yield relax.VarBinding(variable, self.builder.normalize(value))
            return
        kind = relax.TensorType(shape, str(dtype.value))
        of_gpu = variable if home == GPU else relax.Var(f"{variable.name}_gpu", kind)
        yield self._made(of_gpu, TENSOR, shape, dtype)
        if home == CPU:
            self.others[variable] = of_gpu
            yield self._made(variable, BESIDE, of_gpu)

    def _made(self, variable: relax.Var, function: str, *arguments: Any) -> relax.VarBinding:
        """A binding of what a function of the agent gives."""
        call = relax.Call(relax.ExternFunc(function), list(arguments), None, [variable.ty])
        return relax.VarBinding(variable, self.builder.normalize(call))

    def _call(self, binding: Any) -> Iterator[Any]:
        call = binding.value
        name = call.op.name_hint
        device = CPU if name in self.on_cpu else GPU
        arguments = []
        for argument in call.args:
            if isinstance(argument.ty, relax.TensorType) and self._home(argument) != device:
                argument = yield from self._crossed(name, argument, device)
            arguments.append(argument)
        yield relax.VarBinding(
            binding.var, self.builder.normalize(relax.Call(call.op, arguments, call.attrs))
        )

    def _home(self, variable: relax.Var) -> int:
        """The device of a tensor: that of the one of which it is a view."""
        while variable in self.tensors.views:
            variable = self.tensors.views[variable][0]
        return self.tensors.homes.get(variable, GPU)

    def _crossed(self, kernel: str, source: relax.Var, device: int) -> Generator[Any, None, relax.Var]:
        """The tensor of a device to one of the other device, whose elements it has from here on."""
        suffix = "cpu" if device == CPU else "gpu"
        if source in self.tensors.views:
            of, value = self.tensors.views[source]
            other = yield from self._crossed(kernel, of, device)
            if isinstance(value, relax.Var):
                return other
            if source not in self.others:
                view = self.builder.normalize(relax.Call(value.op, [other, *value.args[1:]], value.attrs))
                self.others[source] = relax.Var(f"{source.name}_{suffix}", view.ty)
                yield relax.VarBinding(self.others[source], view)
            return self.others[source]
        if source not in self.others:
            self.others[source] = relax.Var(f"{source.name}_{suffix}", source.ty)
            yield self._made(self.others[source], BESIDE, source)
        other = self.others[source]
        if source not in self.crossed:
            self.crossed.add(source)
            call = relax.Call(relax.ExternFunc(CROSS), [source, other], None, [relax.AnyType()])
            yield relax.VarBinding(relax.Var("_", relax.AnyType()), self.builder.normalize(call))
            size = most_bytes(source.ty.shape, str(source.ty.dtype), self.bounds) or 0
            between = source in self.tensors.homes and source not in self.tensors.returned
            self.crossings.append(Crossing(kernel, device == CPU, size, between))
        return other
