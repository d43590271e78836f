from __future__ import annotations

import tvm
from tvm import relax, tirx

from host.build.shapes import order_sizes, share_shapes


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


def _sizes(places: list[int], read: int) -> tvm.IRModule:
    """A function as `VMShapeLower` makes them: every size in its place, computed of another one."""
    sizes = tirx.decl_buffer((4,), "int64", "H")
    stores = [tirx.BufferStore(sizes, tirx.BufferLoad(sizes, [read]) * 2, [place]) for place in places]
    function = tirx.PrimFunc([sizes], tirx.SeqStmt(stores)).with_attr("tirx.is_host_func", True)
    return tvm.IRModule({"shape_func": function})


def _places(module: tvm.IRModule) -> list[int]:
    return [int(store.indices[0]) for store in module["shape_func"].body.seq]


def test_sizes_are_written_in_the_same_order_in_every_process() -> None:
    assert _places(order_sizes(_sizes([3, 1, 2], read=0))) == [1, 2, 3]


def test_a_size_that_another_is_made_of_stays_before_it() -> None:
    assert _places(order_sizes(_sizes([2, 1, 3], read=2))) == [2, 1, 3]
