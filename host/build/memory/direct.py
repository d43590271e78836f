"""Bindings that compute nothing and still cost the virtual machine an instruction: names, tuples and views.

`CallTIRRewrite` gives the tensor that a kernel has written its name in the model, and the machine copies a
register for each name. A reshape makes a tensor object for memory that has one already. Between two kernels
that take microseconds such an instruction is a part of what can be measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx

_VIEW = "relax.reshape"


def with_direct_arguments(module: tvm.IRModule, views: bool) -> tvm.IRModule:
    """The module whose functions take tensors by the names under which they were made.

    A view is left out where all that take it are kernels for fixed sizes: a kernel reads the address of such
    a tensor, and neither its shape nor the number of its axes (`host.build.kernel.lower_function` leaves the
    checks of shapes out). What a function returns has the shape that it says. Functions with branches, and
    with shapes that are matched in a run, stay as they are.

    Args:
        module: after the memory of its tensors was planned; before tensors are released after their last use.
        views: whether to leave views out, on a processor whose kernels read addresses alone.
    """
    functions = {
        variable: _direct(module, function, views) if isinstance(function, relax.Function) else function
        for variable, function in module.functions.items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)


def _direct(module: tvm.IRModule, entry: relax.Function, views: bool) -> relax.Function:
    if not isinstance(entry.body, relax.SeqExpr):
        return entry
    bindings = [binding for block in entry.body.blocks for binding in block.bindings]
    if not all(_is_flat(binding) for binding in bindings):
        return entry
    known = _names(bindings)
    result = _replaced(entry.body.body, known)
    if views:
        known = _without_views(module, bindings, known, result)
    builder = relax.BlockBuilder(module)
    kept = [
        one for binding in bindings if binding.var not in known for one in _rewritten(binding, known, builder)
    ]
    kept = _without_unused_tuples(kept, result)
    body = relax.SeqExpr([relax.BindingBlock(kept)], result)
    return relax.Function(entry.params, body, entry.ret_ty, entry.is_pure, entry.attrs)


def _is_flat(binding: Any) -> bool:
    """Whether a binding's value has its variables where `_variables` finds them."""
    nested = relax.If | relax.SeqExpr | relax.Function
    if not isinstance(binding, relax.VarBinding) or isinstance(binding.value, nested):
        return False
    arguments = binding.value.args if isinstance(binding.value, relax.Call) else ()
    return not any(isinstance(one, nested | relax.Call | relax.TupleGetItem) for one in arguments)


def _names(bindings: list[Any]) -> dict[relax.Var, relax.Var]:
    """The variable that was bound first for each that is another name of it."""
    known: dict[relax.Var, relax.Var] = {}
    tuples: dict[relax.Var, tuple[Any, ...]] = {}
    for binding in bindings:
        value = binding.value
        if isinstance(value, relax.Var):
            known[binding.var] = known.get(value, value)
            if known[binding.var] in tuples:
                tuples[binding.var] = tuples[known[binding.var]]
        elif isinstance(value, relax.Tuple):
            tuples[binding.var] = tuple(_replaced(field, known) for field in value.fields)
        elif isinstance(value, relax.TupleGetItem) and value.tuple_value in tuples:
            field = tuples[value.tuple_value][value.index]
            if isinstance(field, relax.Var):
                known[binding.var] = field
    return known


def _without_views(
    module: tvm.IRModule, bindings: list[Any], known: Mapping[relax.Var, relax.Var], result: Any
) -> dict[relax.Var, relax.Var]:
    """The names, and for each view that only kernels for fixed sizes take the tensor that it is a view of."""
    shaped = set(_variables(result))
    for binding in bindings:
        if binding.var not in known:
            shaped.update(known.get(one, one) for one in _taken_with_shape(module, binding.value))
    found = dict(known)
    for binding in bindings:
        source = _viewed(binding.value)
        if source is not None and binding.var not in shaped:
            found[binding.var] = found.get(source, source)
        elif binding.var in known:
            # A name of a view that is left out.
            found[binding.var] = found.get(known[binding.var], known[binding.var])
    return found


def _taken_with_shape(module: tvm.IRModule, value: Any) -> Iterator[relax.Var]:
    """The variables in a value whose shape counts there."""
    if _viewed(value) is not None:
        return
    fixed: list[bool] = []
    if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar):
        function = module[value.op]
        if isinstance(function, tirx.PrimFunc):
            fixed = [_has_fixed_shape(parameter) for parameter in function.params]
    if fixed and len(fixed) == len(value.args):
        taken = [one for one, alone in zip(value.args, fixed, strict=True) if not alone]
        yield from (variable for one in taken for variable in _variables(one))
        return
    yield from _variables(value)


def _has_fixed_shape(parameter: Any) -> bool:
    shape = getattr(parameter.ty, "shape", None)
    return shape is not None and all(isinstance(size, tirx.IntImm) for size in shape)


def _viewed(value: Any) -> relax.Var | None:
    """The tensor that a value is a view of; None where it is none."""
    if not isinstance(value, relax.Call) or getattr(value.op, "name", "") != _VIEW:
        return None
    return value.args[0] if isinstance(value.args[0], relax.Var) else None


def _variables(value: Any) -> Iterator[relax.Var]:
    """The variables that a flat value, or the result of a function, takes."""
    if isinstance(value, relax.Var):
        yield value
    elif isinstance(value, relax.Call | relax.Tuple):
        for part in value.args if isinstance(value, relax.Call) else value.fields:
            yield from _variables(part)
    elif isinstance(value, relax.TupleGetItem):
        yield from _variables(value.tuple_value)


def _replaced(value: Any, known: Mapping[relax.Var, relax.Var]) -> Any:
    """A value that is no call with the variables that are known for its own ones."""
    if isinstance(value, relax.Var):
        return known.get(value, value)
    if isinstance(value, relax.Tuple) and any(one in known for one in _variables(value)):
        return relax.Tuple([_replaced(field, known) for field in value.fields])
    if isinstance(value, relax.TupleGetItem) and value.tuple_value in known:
        return relax.TupleGetItem(known[value.tuple_value], value.index)
    return value


def _rewritten(
    binding: Any, known: Mapping[relax.Var, relax.Var], builder: relax.BlockBuilder
) -> Iterator[Any]:
    value = binding.value
    if not any(one in known for one in _variables(value)):
        yield binding
        return
    if isinstance(value, relax.Call):
        arguments = [_replaced(argument, known) for argument in value.args]
        if isinstance(value.op, tvm.ir.GlobalVar) and not all(map(_alike, arguments, value.args)):
            # By its name: a function that relax knows takes tensors of its own shapes.
            function = relax.ExternFunc(value.op.name_hint)
            value = relax.Call(function, arguments, None, value.ty_args or [binding.var.ty])
        else:
            value = relax.Call(value.op, arguments, value.attrs, value.ty_args, value.span)
    else:
        value = _replaced(value, known)
    yield relax.VarBinding(binding.var, builder.normalize(value))


def _alike(one: Any, other: Any) -> bool:
    """Whether a variable is no other one than it was, or of the same type."""
    return one is other or bool(tvm_ffi.structural_equal(one.ty, other.ty))


def _without_unused_tuples(bindings: list[Any], result: Any) -> list[Any]:
    used = set(_variables(result))
    for binding in bindings:
        used.update(_variables(binding.value))
    return [one for one in bindings if one.var in used or not isinstance(one.value, relax.Tuple)]
