"""Choices that unrolling has settled."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, te, tirx

from host.build.kernel import lower_function
from host.tensor_ir.settled_choices import without_settled_choices

COPIES, RESULTS = 4, 3


def select(left: Any, right: Any, a: Any, b: Any) -> tirx.Select:
    return tirx.Select(tirx.EQ(left, right), a, b)


def number(value: int) -> tirx.IntImm:
    return tirx.IntImm("int32", value)


def choices(node: Any) -> list[tirx.Select]:
    found: list[tirx.Select] = []
    tvm_ffi.structural_walk(node, (tirx.Select, found.append))
    return found


def test_the_side_that_is_taken_is_left_and_an_open_choice_stays() -> None:
    x, y, open_index = tirx.Var("x", "int32"), tirx.Var("y", "int32"), tirx.Var("i", "int32")
    inner = select(open_index, number(1), x, y)
    for index, wanted in ((2, x), (3, inner)):
        made = without_settled_choices(tirx.Evaluate(select(number(index), number(2), x, inner)))
        tvm.ir.assert_structural_equal(made.value, wanted, map_free_vars=True)


def test_unrolled_choices_are_settled_before_expressions_are_simplified() -> None:
    x = te.placeholder((RESULTS, 16), "float32", name="x")

    def chosen(i: Any, j: Any) -> Any:
        result = x[RESULTS - 1, j]
        for index in reversed(range(RESULTS - 1)):
            result = tirx.Select(i == index, x[index, j] * 2.0, result)
        return result

    schedule = s_tir.Schedule(te.create_prim_func([x, te.compute((COPIES, 16), chosen, name="made")]))
    row, _ = schedule.get_loops(schedule.get_sblock("made"))
    schedule.unroll(row)
    before: dict[str, int] = {}

    @tvm.ir.instrument.pass_instrument
    class Counts:
        def run_before_pass(self, module: tvm.IRModule, info: Any) -> None:
            found = [one for function in module.functions.values() for one in choices(function.body)]
            before[info.name] = len(found)

    with tvm.transform.PassContext(instruments=[Counts()]):
        lowered = lower_function(schedule.mod["main"], "kernel", tvm.target.Target("llvm"))
    assert before["tirx.UnrollLoop"] == RESULTS - 1
    assert before["s_tir.RenormalizeSplitPattern"] == 0
    assert not choices(next(iter(lowered.functions.values())).body)
