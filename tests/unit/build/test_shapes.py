from __future__ import annotations

import tvm
from tvm import relax, tirx

from host.build.shapes import share_shapes


def _module(symbolic: bool) -> tvm.IRModule:
    length = tirx.Var("n", "int64") if symbolic else tirx.IntImm("int64", 6)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((length, 4), "float32"))
    with builder.function("main", [x]):
        first = builder.emit(relax.op.reshape(x, relax.ShapeExpr([length * 4])))
        second = builder.emit(relax.op.reshape(first, relax.ShapeExpr([4, length])))
        third = builder.emit(relax.op.reshape(second, relax.ShapeExpr([length * 4])))
        builder.emit_func_output(third)
    return builder.get()


def _shapes(module: tvm.IRModule) -> int:
    """Symbolic shapes that are written out, as arguments or once for a variable."""
    found = 0
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            value = binding.value
            places = [value, *value.args] if isinstance(value, relax.Call) else [value]
            shapes = [place for place in places if isinstance(place, relax.ShapeExpr)]
            found += sum(not isinstance(size, tirx.IntImm) for shape in shapes for size in shape.values)
    return found


def test_equal_shapes_are_made_once() -> None:
    module = _module(symbolic=True)
    shared = share_shapes(module)
    assert (_shapes(module), _shapes(shared)) == (3, 2)


def test_a_module_of_fixed_shapes_stays_as_it_is() -> None:
    module = _module(symbolic=False)
    assert share_shapes(module).same_as(module)
