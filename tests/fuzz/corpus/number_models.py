"""Models whose compiled form computed wrong numbers once, or touched memory that was not its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import helper, numpy_helper

from tests.fuzz.case import Case
from tests.fuzz.random_models.model import OPSET

MODEL = "model.onnx"


def cases() -> list[Case]:
    """Everything that was a fault once."""
    return [_tile((2, 3, 4, 5), (7, 4, 6, 9)), _scatter()]


def _tile(shape: Sequence[int], repeats: Sequence[int]) -> Case:
    return _case("tile", "Tile", shape, np.array(repeats, np.int64))


def _scatter() -> Case:
    places = np.array([1, 0]).reshape(2, 1, 1).repeat(3, axis=2)
    return _case("scatter", "ScatterElements", (3, 4, 5), places, np.ones(places.shape, np.float32))


def _case(name: str, operator: str, shape: Sequence[int], *constants: np.ndarray) -> Case:
    """One operator on one fp32 input."""
    weights = [numpy_helper.from_array(array, f"w{index}") for index, array in enumerate(constants)]
    node = helper.make_node(operator, ["x", *(weight.name for weight in weights)], ["y"])
    given = helper.make_tensor_value_info("x", 1, shape)
    made = helper.make_tensor_value_info("y", 1, None)
    graph = helper.make_graph([node], name, [given], [made], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    return Case(name, {MODEL: model.SerializeToString(deterministic=True)})
