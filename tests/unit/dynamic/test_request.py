from __future__ import annotations

from typing import Any

import pytest

from host.dynamic import dimension_of
from host.errors import ShapeError
from host.importers.pins import DeclaredInput

INPUTS = (
    DeclaredInput("ids", ("batch", "seq"), "int64"),
    DeclaredInput("mask", ("batch", "seq"), "int64"),
    DeclaredInput("scale", (3,), "float32"),
)


def test_a_symbol_is_open_in_every_input() -> None:
    found = dimension_of("m", INPUTS, {"batch": (2,)}, {"seq": [(1, 512)]})
    assert (found.name, found.low, found.high) == ("seq", 1, 512)
    assert found.shapes_at(7) == {"ids": (2, 7), "mask": (2, 7), "scale": (3,)}


def test_the_range_may_stand_in_the_shape_of_an_input() -> None:
    found = dimension_of("m", INPUTS, {}, {"ids": [(4, 4), (8, 16)]})
    assert found.shapes_at(9) == {"ids": (4, 9), "mask": (4, 9), "scale": (3,)}


def test_a_dimension_without_a_name_can_be_open() -> None:
    found = dimension_of("m", [DeclaredInput("x", (1, ""), "float32")], {}, {"x": [(1, 1), (2, 5)]})
    assert found.shapes_at(3) == {"x": (1, 3)}


@pytest.mark.parametrize(
    ("shapes", "ranges", "words"),
    [
        ({}, {"seq": [(1, 8)]}, "'batch' of input 'ids' is open too.*--shape batch=N"),
        ({}, {"seq": [(1, 8)], "batch": [(1, 2)]}, "leaves 2 dimensions open"),
        ({"batch": (1,)}, {"seq": [(8, 8)]}, "holds one length"),
        ({"batch": (1,)}, {"seq": [(0, 8)]}, "no range of positive sizes"),
        ({"batch": (1,)}, {"seq": [(9, 8)]}, "no range of positive sizes"),
        ({"batch": (1,)}, {"length": [(1, 8)]}, "names 'length', but .* ids, mask, scale, batch, seq"),
        ({"batch": (1,)}, {"ids": [(1, 8)]}, "ids has 1 dimensions, the model wants 2"),
        ({"seq": (4,)}, {"ids": [(1, 1), (1, 8)]}, "given two sizes"),
        ({"batch": (1,)}, {"seq": [(1, 8)], "scale": [(1, 3)]}, "fixed at 3"),
    ],
)
def test_what_cannot_be_served_is_refused(shapes: dict[str, Any], ranges: dict[str, Any], words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        dimension_of("m", INPUTS, shapes, ranges)
