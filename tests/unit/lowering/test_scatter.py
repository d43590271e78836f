"""Scatters of constants into constants."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from tests.unit.lowering.harness import check, functions, normal

op = relax.op


def _table(indices: np.ndarray, reduction: str = "update"):
    def build(bb, x):
        zeros = relax.const(np.zeros((4, 5), "float32"))
        updates = relax.const(np.arange(indices.size, dtype="float32").reshape(indices.shape))
        table = bb.emit(op.scatter_elements(zeros, relax.const(indices), updates, 1, reduction))
        return op.add(x, table)

    return build


@pytest.mark.parametrize("indices", [[[0, 1]] * 4, [[4, -1]] * 4, [[3]] * 4])
def test_a_table_of_constants_is_a_constant(indices: list[list[int]]) -> None:
    model = check(_table(np.array(indices, "int64")), [normal(4, 5)])
    assert functions(model) == ["fused_add"]


@pytest.mark.parametrize(
    ("indices", "reduction"), [([[1, 2]] * 4, "add"), ([[1, 2]] * 2, "update")], ids=["sums", "part"]
)
def test_other_scatters_are_left_to_tvm(indices: list[list[int]], reduction: str) -> None:
    found = functions(check(_table(np.array(indices, "int64"), reduction), [normal(4, 5)]))
    assert any("scatter" in name for name in found)
