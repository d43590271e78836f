"""Tables whose index is a value that a name stands for."""

from __future__ import annotations

import tvm_ffi
from tvm import s_tir, te, tirx

from host.lowering.expressions.read_regions import with_whole_reads


def _regions(function: tirx.PrimFunc) -> list[str]:
    found: list[str] = []

    def visit(block: s_tir.SBlock) -> None:
        found.extend(str(region) for region in block.reads)

    tvm_ffi.structural_walk(function.body, ((s_tir.SBlock, visit),), order="post")
    return found


def _function(named: bool) -> tirx.PrimFunc:
    x, table = te.placeholder((8,), "float32", name="x"), te.placeholder((256,), "int8", name="table")
    name = tirx.Var("v", "int32")

    def element(i: tirx.Var) -> tirx.Expr:
        place = x[i].astype("int32")
        if not named:
            return table[place].astype("int32") * place
        return tirx.Let(name, place, table[name].astype("int32") * name)

    return te.create_prim_func([x, table, te.compute((8,), element, name="y")])


def test_a_table_whose_index_has_a_name_is_read_whole() -> None:
    made = with_whole_reads(_function(named=True))
    assert any("table[0:256]" in region for region in _regions(made))


def test_functions_without_such_names_stay() -> None:
    function = _function(named=False)
    assert with_whole_reads(function) is function
