"""Which models read their weights about once in a run."""

from __future__ import annotations

import pytest
from tvm import relax

from host.lowering import lower
from tests.unit.lowering.harness import board, imported

COLUMNS = 4096


@pytest.mark.parametrize(
    ("rows", "streams", "beside_others"),
    [(1, True, False), (4, True, False), (8, False, True), (64, False, False)],
)
def test_a_product_of_few_rows_reads_its_weight_once(rows: int, streams: bool, beside_others: bool) -> None:
    builder = relax.BlockBuilder()
    data, weight = (
        relax.Var(name, relax.TensorType(shape, "float32"))
        for name, shape in (("data", (rows, 8)), ("weight", (8, COLUMNS)))
    )
    with builder.function("main", [data, weight]):
        with builder.dataflow():
            made = builder.emit_output(builder.emit(relax.op.matmul(data, weight)))
        builder.emit_func_output(made)
    model = lower(imported(builder.get()), board(4))
    weights = 8 * COLUMNS * 4
    # The bound of the size is not what is tried: as many weights as this one again and again.
    copies = (32 << 20) // weights
    many = type(model)(model.name, model.signature, model.module, (), model.tasks * copies, model.target)
    assert many.streams(copies * weights) == streams
    # Ten times as many weights: with few rows most are not read, with eight a byte has 0.4 operations.
    assert many.streams(10 * copies * weights) == beside_others
    # And few.
    assert not model.streams(weights)
