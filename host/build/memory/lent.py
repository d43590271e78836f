"""Functions of a model beside its own ones, whose tensors between kernels are made once for all calls.

Making a tensor, and the tensor that begins where its data does, takes the virtual machine half as long each
as the smallest kernels take, in every call. For each function of a model there are two more: one makes these
tensors, and the other one does what the function does with tensors that it is lent behind its parameters. The
agent makes them once and binds them like weights. A caller that knows nothing of them calls the function
itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx

from host.build.memory.plan import entries_of

# Names of both functions, made from that of the function; the agents and the example in C++ have them too.
TENSORS, LENT = "edgetlm_tensors_%s", "edgetlm_lent_%s"
_STORAGE = "relax.memory.alloc_storage"
_PLACED = ("relax.memory.alloc_tensor", "relax.memory.ensure_zero_offset")


def with_lent_tensors(module: tvm.IRModule) -> tvm.IRModule:
    """The module with both functions for each of its own that has tensors of fixed sizes in one block.

    What a function returns has memory of its own in each call there too.

    Args:
        module: after its memory was planned, where no tensor is released before the end
            (`host.build.memory.plan.is_whole`).
    """
    functions = dict(module.functions.items())
    builder = relax.BlockBuilder(module)
    for name in entries_of(module):
        split = _split(module[name])
        if split is None:
            continue
        functions[tvm.ir.GlobalVar(TENSORS % name)] = _maker(split, module[name], builder)
        functions[tvm.ir.GlobalVar(LENT % name)] = _borrower(split, module[name])
    return tvm.IRModule(functions, attrs=module.attrs)


@dataclass(frozen=True)
class _Split:
    """The bindings of a function.

    Attributes:
        making: those that make tensors in the block.
        rest: all others.
        tensors: of the block, that the others use.
    """

    making: list[Any]
    rest: list[Any]
    tensors: list[relax.Var]


def _split(entry: relax.Function) -> _Split | None:
    """The bindings of a function; None where a tensor in the block has no fixed size, or none is used."""
    if not isinstance(entry.body, relax.SeqExpr):
        return None
    making: list[Any] = []
    rest: list[Any] = []
    made: set[relax.Var] = set()
    for binding in (one for block in entry.body.blocks for one in block.bindings):
        if _makes_in_block(binding.value, made):
            making.append(binding)
            made.add(binding.var)
        else:
            rest.append(binding)
    used: dict[relax.Var, None] = {}

    def visit(node: Any) -> None:
        if isinstance(node, relax.Var) and node in made:
            used[node] = None

    for binding in rest:
        relax.analysis.post_order_visit(binding.value, visit)
    relax.analysis.post_order_visit(entry.body.body, visit)
    if not used or not all(isinstance(tensor.ty, relax.TensorType) for tensor in used):
        return None
    return _Split(making, rest, list(used))


def _makes_in_block(value: Any, made: set[relax.Var]) -> bool:
    if not isinstance(value, relax.Call):
        return False
    name = getattr(value.op, "name", "")
    if name == _STORAGE:
        return _is_fixed(value.args[0])
    if name not in _PLACED or value.args[0] not in made:
        return False
    return name != _PLACED[0] or _is_fixed(value.args[2])


def _is_fixed(shape: Any) -> bool:
    return isinstance(shape, relax.ShapeExpr) and all(isinstance(size, tirx.IntImm) for size in shape.values)


def _maker(split: _Split, entry: relax.Function, builder: relax.BlockBuilder) -> relax.Function:
    """A function without parameters that gives the tensors as a tuple."""
    value = builder.normalize(relax.Tuple(split.tensors))
    result = relax.Var("tensors", value.ty)
    blocks = [relax.BindingBlock([*split.making, relax.VarBinding(result, value)])]
    made = relax.Function([], relax.SeqExpr(blocks, result), value.ty, entry.is_pure)
    return relax.utils.copy_with_new_vars(made)


def _borrower(split: _Split, entry: relax.Function) -> relax.Function:
    """The function with the tensors behind its parameters; `num_input` still counts the inputs alone."""
    body = relax.SeqExpr([relax.BindingBlock(split.rest)], entry.body.body)
    attributes = entry.without_attr("global_symbol").attrs
    parameters = [*entry.params, *split.tensors]
    lent = relax.Function(parameters, body, entry.ret_ty, entry.is_pure, attributes)
    return relax.utils.copy_with_new_vars(lent)
