"""Shapes that depend on a length, made once in a run instead of once for every tensor that has them."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx


def share_shapes(module: tvm.IRModule) -> tvm.IRModule:
    """Bind each shape of `main` that is not all numbers where it is first used.

    The virtual machine makes a shape anew wherever it stands as an argument, at a quarter of a microsecond
    each; a network has a tensor of the same few shapes for every kernel. A module without such shapes, or
    with branches, stays as it is.

    Args:
        module: after lowering to calls of the machine's own functions, before shapes are lowered.
    """
    main = module["main"]
    if _has_branches(main):
        return module
    sharing = _Sharing(module)
    changed = sharing.visit_expr(main)
    if not sharing.known:
        return module
    builder = sharing.builder_
    builder.update_func(module.get_global_var("main"), changed)
    return builder.get()


def order_sizes(module: tvm.IRModule) -> tvm.IRModule:
    """Order the stores of the functions that compute sizes by the places of the sizes.

    TVM writes them in the order of a table by address, which differs from process to process, and so would
    the bytes of two builds of the same model.

    Args:
        module: after `VMShapeLower`.
    """
    ordered = {
        variable: _in_order(function)
        for variable, function in module.functions.items()
        if isinstance(function, tirx.PrimFunc) and "tirx.is_host_func" in (function.attrs or {})
    }
    if ordered:
        module = tvm.IRModule({**dict(module.functions.items()), **ordered}, attrs=module.attrs)
    return module


def _in_order(function: tirx.PrimFunc) -> tirx.PrimFunc:
    stores = list(function.body.seq) if isinstance(function.body, tirx.SeqStmt) else []
    if not all(isinstance(store, tirx.BufferStore) for store in stores):
        return function
    written = {int(store.indices[0]) for store in stores}
    read = set[int]()

    def visit(load: tvm.ir.TensorLoad) -> None:
        read.add(int(load.indices[0]))

    for store in stores:
        tvm_ffi.structural_walk(store.value, (tvm.ir.TensorLoad, visit), order="post")
    # A size that another one is made of has its place in the order already.
    if not stores or read & written:
        return function
    return function.with_body(tirx.SeqStmt(sorted(stores, key=lambda store: int(store.indices[0]))))


def _has_branches(function: relax.Function) -> bool:
    found = False

    def visit(node: Any) -> None:
        nonlocal found
        found = found or isinstance(node, relax.If)

    relax.analysis.post_order_visit(function, visit)
    return found


@relax.expr_functor.mutator
class _Sharing(relax.PyExprMutator):  # type: ignore[misc]
    """Replaces symbolic shapes among the arguments of calls by variables."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.known: dict[str, relax.Var] = {}

    def visit_call_(self, call: relax.Call) -> Any:
        """A call with its symbolic shapes as variables."""
        arguments = [self._shared(argument) for argument in call.args]
        return relax.Call(call.op, arguments, call.attrs, call.ty_args, call.span)

    def _shared(self, argument: Any) -> Any:
        if not isinstance(argument, relax.ShapeExpr):
            return self.visit_expr(argument)
        if all(isinstance(size, tirx.IntImm) for size in argument.values):
            return argument
        key = str(argument)
        if key not in self.known:
            self.known[key] = self.builder_.emit(argument, "shape")
        return self.known[key]
