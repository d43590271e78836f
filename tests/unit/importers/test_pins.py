from __future__ import annotations

import pytest

from host.errors import ShapeError
from host.importers.pins import DeclaredInput, pin

IDS = DeclaredInput("ids", ("batch", "length"), "int64")
MASK = DeclaredInput("mask", ("batch", "length"), "int64")
IMAGE = DeclaredInput("image", ("", 3, 8, 8), "float32")
ANY = DeclaredInput("any", None, "float32")


def test_fixed_shapes_stay() -> None:
    fixed = DeclaredInput("x", (2, 3), "float32")
    assert pin("m.onnx", [fixed], {}) == {"x": (2, 3)}


def test_a_symbol_given_once_holds_everywhere() -> None:
    assert pin("m.onnx", [IDS, MASK], {"ids": (1, 128)}) == {"ids": (1, 128), "mask": (1, 128)}


def test_an_open_dimension_names_input_and_option() -> None:
    with pytest.raises(ShapeError, match=r"m\.onnx: input 'image' .*--shape image=N,3,8,8"):
        pin("m.onnx", [IMAGE], {})


def test_an_unknown_rank_names_the_option() -> None:
    with pytest.raises(ShapeError, match="--shape any=N"):
        pin("m.onnx", [ANY], {})
    assert pin("m.onnx", [ANY], {"any": (4,)}) == {"any": (4,)}


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"image": (1, 3, 8)}, "has 3 dimensions, the model wants 4"),
        ({"image": (1, 4, 8, 8)}, "does not fit, the model fixes image="),
        ({"image": (-1, 3, 8, 8)}, "negative"),
        ({"picture": (1, 3, 8, 8)}, "the inputs are image"),
    ],
)
def test_a_shape_that_does_not_fit(shapes: dict[str, tuple[int, ...]], words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        pin("m.onnx", [IMAGE], shapes)


def test_one_symbol_with_two_sizes() -> None:
    with pytest.raises(ShapeError, match="another input makes it 128"):
        pin("m.onnx", [IDS, MASK], {"ids": (1, 128), "mask": (1, 64)})


def test_a_symbol_can_be_given_by_its_name() -> None:
    assert pin("m.onnx", [IDS, MASK], {"batch": (2,), "length": (9,)}) == {"ids": (2, 9), "mask": (2, 9)}
    with pytest.raises(ShapeError, match=r"another input makes it 9|makes dimension 'length' 8"):
        pin("m.onnx", [IDS, MASK], {"length": (9,), "ids": (1, 8)})
    with pytest.raises(
        ShapeError, match="'size', but the inputs are ids and the open dimensions batch, length"
    ):
        pin("m.onnx", [IDS], {"size": (3,)})
