"""How weights of dense products are cut into blocks."""

from __future__ import annotations

import pytest
from tvm import relax

from host.lowering.passes.pack_weights import block_count
from tests.unit.lowering.harness import check, normal, weight

LANES = 8


@pytest.mark.parametrize(
    ("columns", "blocks"),
    [(8 * 17, 18), (8 * 18, 18), (8 * 21, 21), (8 * 25 - 3, 26), (8 * 13, 13), (50257, 6284), (1000, 126)],
)
def test_tiles_of_several_blocks_divide_many_blocks(columns: int, blocks: int) -> None:
    assert block_count(columns, LANES) == blocks


@pytest.mark.parametrize("columns", [8 * 17, 8 * 25 - 3])
def test_a_block_that_is_added_changes_no_result(columns: int) -> None:
    model = check(
        lambda builder, data: relax.op.add(
            relax.op.matmul(data, weight(12, columns)), relax.const(normal(columns, seed=3))
        ),
        [normal(5, 12)],
        lanes=LANES,
    )
    packed = max(model.parameters, key=lambda parameter: parameter.size)
    assert packed.shape == (block_count(columns, LANES), 12, LANES)


def test_threads_of_a_gpu_take_blocks_as_they_are() -> None:
    assert block_count(32 * 17, 32) == 17
