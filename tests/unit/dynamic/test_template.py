from __future__ import annotations

import pytest
import tvm_ffi
from tvm import te, tirx

from host.dynamic.template import Share, unify
from host.errors import LoweringError
from tests.unit.schedules import functions

WITNESSES = (37, 59, 97, 151)


def test_a_program_unified_at_a_few_lengths_is_the_program_of_any_other() -> None:
    template = unify({n: functions.dense(n, 32, 8) for n in WITNESSES}, "dense")
    for n in (1, 2, 64, 500):
        assert tvm_ffi.structural_equal(template.at(n), functions.dense(n, 32, 8), map_free_vars=True)


def test_both_sizes_of_a_square_grow() -> None:
    template = unify({n: functions.batched(2, n, n, 8) for n in WITNESSES}, "scores")
    assert tvm_ffi.structural_equal(template.at(19), functions.batched(2, 19, 19, 8), map_free_vars=True)


def test_a_mean_divides_by_the_length() -> None:
    def mean(n: int) -> tirx.PrimFunc:
        a = te.placeholder((n, 4), name="A")
        k = te.reduce_axis((0, n), name="k")
        total = te.compute((4,), lambda j: te.sum(a[k, j], axis=k), name="total")
        return te.create_prim_func(
            [a, te.compute((4,), lambda j: total[j] * tirx.const(1.0 / n, "float32"), name="mean")]
        )

    template = unify({n: mean(n) for n in WITNESSES}, "mean")
    assert Share(1.0) in template.slots.values()
    length = tirx.Var("n", "int32")
    assert "n" in str(template.over(length))


def test_another_structure_at_one_length_is_refused() -> None:
    programs = {n: functions.dense(n, 32, 8) for n in WITNESSES[:3]}
    with pytest.raises(LoweringError, match=r"other is not one program over a range.*give one length"):
        unify(programs | {151: functions.batched(1, 149, 32, 8)}, "other")


def test_a_number_without_a_formula_is_refused() -> None:
    sizes = {37: 16, 59: 32, 97: 64, 151: 256}
    with pytest.raises(LoweringError, match="no formula gives"):
        unify({n: functions.dense(n, columns, 8) for n, columns in sizes.items()}, "odd")
