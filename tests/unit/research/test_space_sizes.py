"""The table of the sizes of design spaces."""

from __future__ import annotations

import pytest

from research.figures.space_sizes import LARGE, board_and_type, line_of, lines_of, size_of, spaces_of
from tests.unit.lowering.harness import imported, relax_module
from tests.unit.lowering.test_bands import Shape, small_board


def test_chains_in_bands_are_listed_if_they_are_wanted() -> None:
    shape = Shape()
    model = imported(relax_module(shape.build, shape.inputs))
    board = small_board(16 << 10)
    apart = list(spaces_of(model, board, "", 1, in_bands=False))
    every = list(spaces_of(model, board, "", 1, in_bands=True))
    assert "chain" not in {one.rule.name for one in apart}
    [chain] = [one for one in every if one.rule.name == "chain"]
    size = size_of(chain)
    assert size > LARGE
    assert f"chain contraction {chain.task.flops / 1e6:.1f} MFLOP {size:.3g} programs" in line_of(
        "board", "model", chain, size
    )


def test_rules_are_counted_with_their_large_spaces() -> None:
    assert lines_of({"tiled": [10.0, 2e5, 30.0], "chain": [1e9]}) == [
        "chain                 1 tasks,    1 large, median 1e+09, most 1e+09",
        "tiled                 3 tasks,    1 large, median 30, most 2e+05",
    ]


@pytest.mark.parametrize(
    "name, gpu, half",
    [
        ("raspberry_pi_5", False, ""),
        ("jetson_orin_nano-gpu-fp16", True, "float16"),
        ("x86_64-v4-bf16", False, "bfloat16"),
    ],
)
def test_names_of_boards_have_the_gpu_and_the_type(name: str, gpu: bool, half: str) -> None:
    board, found = board_and_type(name)
    assert (board.hardware.gpu is not None, found) == (gpu, half)
