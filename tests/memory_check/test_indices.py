"""What an application gives as an index, a length or a place stays within the tensor that it points into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, helper, numpy_helper

from tests.memory_check.compiled import outputs_in_a_child, save

SHAPE = (4, 6, 5)
LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
FAR = (1 << 40, -(1 << 40), 7, -7, LEAST, MOST, (1 << 32) + 1, 0)
FAR_FLOATS = (1e30, -1e30, np.nan, np.inf, -np.inf, 7.5, -7.5, 0.5)


@dataclass(frozen=True)
class Row:
    """An operator with indices that are drawn from those far outside.

    Attributes:
        operator: its name.
        data: shapes of the tensors of ones before the indices.
        indices: shapes of the tensors of indices.
        result: shape of the result.
        updates: shapes of the tensors of ones behind the indices.
        numbers: what indices are drawn from.
        dtype: of the indices.
        attributes: of the node.
        before: nodes that make constants.
        inputs: of the node, where they are not all inputs of the model in order.
        behind: nodes that make "y" of "z", the result of the node.
        values: what a result may hold.
        opset: version of the standard operators.
    """

    operator: str
    data: Sequence[tuple[int, ...]]
    indices: Sequence[tuple[int, ...]]
    result: tuple[int, ...]
    updates: Sequence[tuple[int, ...]] = ()
    numbers: Sequence[float] = FAR
    dtype: str = "int64"
    attributes: dict[str, Any] = field(default_factory=dict)
    before: Sequence[NodeProto] = ()
    inputs: str = ""
    behind: Sequence[NodeProto] = ()
    values: Sequence[float] = (1,)
    opset: int = 20


def _constant(name: str, value: Any, dtype: str) -> NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.array(value, dtype)))


_TABLE = (64,)
_GUARDED = (
    _constant("ten", 10, "int64"),
    _constant("other", 1.0, "float32"),
)
ROWS = {
    "ScatterElements": Row("ScatterElements", [SHAPE], [SHAPE], SHAPE, [SHAPE]),
    "ScatterND": Row("ScatterND", [SHAPE], [(3, 2)], SHAPE, [(3, 5)]),
    "GatherElements": Row("GatherElements", [SHAPE], [SHAPE], SHAPE),
    "GatherND": Row("GatherND", [SHAPE], [(3, 2)], (3, 5)),
    "Gather": Row("Gather", [SHAPE], [(3, 2)], (3, 2, 6, 5)),
    "Gather of int32": Row(
        "Gather", [SHAPE], [(3, 2)], (3, 2, 6, 5), numbers=(2**31 - 1, -(2**31), 7, -7), dtype="int32"
    ),
    # The condition says of the index what its bound says.
    "Gather where the index fits": Row(
        "Gather",
        [(10,)],
        [_TABLE],
        _TABLE,
        before=_GUARDED,
        behind=[
            helper.make_node("Less", ["i0", "ten"], ["fits"]),
            helper.make_node("Where", ["fits", "z", "other"], ["y"]),
        ],
    ),
    "Gather where the index is one": Row(
        "Gather",
        [(10,)],
        [_TABLE],
        _TABLE,
        before=_GUARDED,
        behind=[
            helper.make_node("Cast", ["i0"], ["fits"], to=9),
            helper.make_node("Where", ["fits", "other", "z"], ["y"]),
        ],
    ),
    "OneHot": Row(
        "OneHot",
        [],
        [(3, 2)],
        (3, 2, 6),
        before=[_constant("depth", [6], "int64"), _constant("ends", [0, 1], "float32")],
        inputs="i0 depth ends",
        values=(0, 1),
    ),
    "Slice": Row("Slice", [SHAPE], [(3,), (3,), (3,), (3,)], (2, 3, 4), inputs="d0 i0 i1 i2 i3", values=(1,)),
    "Pad": Row("Pad", [SHAPE], [(6,)], (5, 8, 40), values=(0, 1)),
    "Pad by the edge": Row("Pad", [SHAPE], [(6,)], (5, 8, 40), attributes={"mode": "edge"}),
    "Pad by reflection": Row("Pad", [SHAPE], [(6,)], (5, 8, 40), attributes={"mode": "reflect"}),
    "Pad around": Row("Pad", [SHAPE], [(6,)], (5, 8, 40), attributes={"mode": "wrap"}),
    "Pad of computed axes": Row(
        "Pad",
        [SHAPE],
        [(4,), (2,)],
        (5, 8, 40),
        before=[_constant("fill", 1, "float32")],
        inputs="d0 i0 fill i1",
    ),
    "TensorScatter": Row("TensorScatter", [(2, 3, 8, 40), (2, 3, 5, 40)], [(2,)], (2, 3, 8, 40), opset=24),
    "TensorScatter along the last axis": Row(
        "TensorScatter", [(2, 3, 80), (2, 3, 33)], [(2,)], (2, 3, 80), attributes={"axis": 2}, opset=24
    ),
    "TensorScatter around": Row(
        "TensorScatter",
        [(2, 3, 8, 40), (2, 3, 5, 40)],
        [(2,)],
        (2, 3, 8, 40),
        attributes={"mode": "circular"},
        opset=24,
    ),
    "ReverseSequence": Row(
        "ReverseSequence", [SHAPE], [(4,)], SHAPE, attributes={"batch_axis": 0, "time_axis": 1}
    ),
    "MaxUnpool": Row(
        "MaxUnpool",
        [(1, 1, 2, 2)],
        [(1, 1, 2, 2)],
        (1, 1, 4, 4),
        attributes={"kernel_shape": [2, 2], "strides": [2, 2]},
        values=(0, 1),
    ),
    "RoiAlign": Row(
        "RoiAlign",
        [(2, 3, 6, 6), (5, 4)],
        [(5,)],
        (5, 3, 2, 2),
        attributes={"output_height": 2, "output_width": 2, "sampling_ratio": 2},
        values=(0, 1),
    ),
    "MaxRoiPool": Row(
        "MaxRoiPool",
        [(2, 3, 6, 6)],
        [(8, 5)],
        (8, 3, 2, 2),
        numbers=FAR_FLOATS,
        dtype="float32",
        attributes={"pooled_shape": [2, 2]},
        values=(0, 1, -np.inf),
    ),
    "GridSample": Row(
        "GridSample",
        [(1, 3, 6, 6)],
        [(1, 5, 7, 2)],
        (1, 3, 5, 7),
        numbers=FAR_FLOATS,
        dtype="float32",
        values=(),
    ),
    "RoiAlign of far regions": Row(
        "RoiAlign",
        [(2, 3, 6, 6)],
        [(8, 4)],
        (8, 3, 2, 2),
        numbers=FAR_FLOATS,
        dtype="float32",
        attributes={"output_height": 2, "output_width": 2, "sampling_ratio": 2},
        before=[_constant("images", [0, 1] * 4, "int64")],
        inputs="d0 i0 images",
        values=(),
    ),
    "RoiAlign of far regions, a sample for each pixel": Row(
        "RoiAlign",
        [(2, 3, 6, 6)],
        [(8, 4)],
        (8, 3, 2, 2),
        numbers=(*FAR_FLOATS, 1e6, -1e6),
        dtype="float32",
        attributes={"output_height": 2, "output_width": 2, "sampling_ratio": 0},
        before=[_constant("images", [0, 1] * 4, "int64")],
        inputs="d0 i0 images",
        values=(),
    ),
    "GridSample by reflection": Row(
        "GridSample",
        [(1, 3, 6, 6)],
        [(1, 5, 7, 2)],
        (1, 3, 5, 7),
        numbers=FAR_FLOATS,
        dtype="float32",
        attributes={"padding_mode": "reflection"},
        values=(),
    ),
    "DeformConv": Row(
        "DeformConv",
        [(1, 1, 5, 5), (1, 1, 2, 2)],
        [(1, 8, 4, 4)],
        (1, 1, 4, 4),
        numbers=FAR_FLOATS,
        dtype="float32",
        values=(),
    ),
    "Resize": Row(
        "Resize",
        [SHAPE],
        [(3,)],
        (8, 6, 40),
        numbers=FAR_FLOATS,
        dtype="float32",
        inputs="d0 _ i0",
        attributes={"mode": "nearest"},
    ),
    "Resize by a line": Row(
        "Resize",
        [SHAPE],
        [(3,)],
        (8, 6, 40),
        numbers=FAR_FLOATS,
        dtype="float32",
        inputs="d0 _ i0",
        attributes={"mode": "linear"},
        values=(),
    ),
    "GRU": Row(
        "GRU",
        [(7, 4, 3), (1, 15, 3), (1, 15, 5)],
        [(4,)],
        (7, 1, 4, 5),
        numbers=(2**31 - 1, -(2**31), 8, -1),
        dtype="int32",
        inputs="d0 d1 d2 _ i0",
        attributes={"hidden_size": 5, "direction": "reverse"},
        values=(),
    ),
    "RotaryEmbedding": Row(
        "RotaryEmbedding",
        [(2, 3, 4, 8), (16, 4), (16, 4)],
        [(2, 4)],
        (2, 3, 4, 8),
        values=(),
        opset=23,
    ),
    "Trilu": Row("Trilu", [SHAPE], [()], SHAPE, values=(0, 1)),
    "CumSum": Row("CumSum", [SHAPE], [()], SHAPE, values=range(7)),
    **{
        f"{name} of {dtype}": Row(
            name,
            [],
            [SHAPE, SHAPE],
            SHAPE,
            values=(),
            dtype=dtype,
            numbers=(np.iinfo(dtype).min, np.iinfo(dtype).max, -1, 0, 1, 7),
            inputs="i0 i1",
        )
        for name in ("Div", "Mod")
        for dtype in ("int8", "int32", "int64")
    },
    "BitShift": Row(
        "BitShift",
        [],
        [SHAPE, SHAPE],
        SHAPE,
        values=(),
        dtype="uint32",
        numbers=(0, 1, 31, 32, 33, 2**32 - 1),
        attributes={"direction": "LEFT"},
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_indices_out_of_range_touch_no_other_memory(name: str, tmp_path: Path) -> None:
    row = ROWS[name]
    draw = np.random.default_rng(0)
    numbers = np.array(row.numbers, row.dtype)
    given = {f"d{index}": np.ones(shape, np.float32) for index, shape in enumerate(row.data)}
    given |= {f"i{index}": draw.choice(numbers, shape) for index, shape in enumerate(row.indices)}
    given = {name: np.asarray(array) for name, array in given.items()}
    given |= {f"u{index}": np.ones(shape, np.float32) for index, shape in enumerate(row.updates)}
    kind = np.dtype(row.dtype if not row.data and row.operator != "OneHot" else np.float32)
    node = helper.make_node(
        row.operator, _names(row) or list(given), ["z" if row.behind else "y"], **row.attributes
    )
    path = save(
        tmp_path / "model.onnx",
        [*row.before, node, *row.behind],
        given,
        {"y": (kind, row.result)},
        row.opset,
    )
    samples = [np.ones_like(array) for array in given.values()]
    [made] = outputs_in_a_child(path, list(given.values()), samples, [np.ones(row.result, kind)])
    if row.values:
        assert np.isin(made, row.values).all(), np.unique(made)


def _names(row: Row) -> list[str]:
    """The inputs of the node, "" for one that is left out."""
    return [name.strip("_") for name in row.inputs.split()]
