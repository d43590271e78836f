from __future__ import annotations

import pytest
import tvm
from tvm import te, tirx

from host.dynamic.dispatch import Run, dispatched, runs_of


def test_neighbours_of_one_program_are_one_run() -> None:
    assert runs_of([0, 0, 1, 1, 0], 3) == (Run(4, 0), Run(6, 1), Run(7, 0))


@pytest.mark.parametrize("choices", [[0, 1, 2, 1, 0, 0, 2, 2, 1], [0] * 9, [2, 2, 2, 1, 1, 1, 0, 0, 0]])
def test_the_program_of_the_length_runs(choices: list[int]) -> None:
    import numpy as np

    low = 2
    length = tirx.Var("n", "int32")

    def program(number: int) -> tirx.PrimFunc:
        a = te.placeholder((length,), name="A")
        return te.create_prim_func([a, te.compute((length,), lambda i: a[i] + tirx.const(number, "float32"))])

    made = dispatched([program(number) for number in range(3)], runs_of(choices, low), length)
    function = tvm.compile(made.with_attr("global_symbol", "f"), target="llvm")["f"]
    for offset, expected in enumerate(choices):
        values = tvm.runtime.tensor(np.zeros(low + offset, np.float32))
        output = tvm.runtime.tensor(np.zeros(low + offset, np.float32))
        function(values, output)
        assert set(output.numpy()) == {expected}
