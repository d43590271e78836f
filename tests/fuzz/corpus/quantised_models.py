"""Quantised models whose compiled form computed wrong numbers once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from tests.fuzz.case import Case
from tests.fuzz.random_models.quantised import WIDE_OPSET

MODEL = "model.onnx"


def cases() -> list[Case]:
    """Everything that was a fault once."""
    return [_signed_sum(), _quotients_of_halves()]


def _signed_sum() -> Case:
    """Without a zero point of its own, the sum has the sign of its operands."""
    scales = {
        name: np.array(value, np.float32) for name, value in (("as", 0.1), ("bs", 0.0513), ("cs", 0.1237))
    }
    zeros = {"az": np.array(3, np.int8), "bz": np.array(-5, np.int8)}
    names = ["a", "as", "az", "b", "bs", "bz", "cs"]
    node = helper.make_node("QLinearAdd", names, ["y"], domain="com.microsoft")
    return _case("signed_sum", [node], {"a": 3, "b": 3}, (4, 33), 3, scales | zeros)


def _quotients_of_halves() -> Case:
    """A quotient of halves lies on a tie where the exact one does not."""
    parameters = {"s": np.array(0.0301, np.float16), "z": np.array(128, np.uint8)}
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])
    return _case("quotients_of_halves", [node], {"x": 10}, (40, 100), 2, parameters)


def _case(
    name: str,
    nodes: Sequence[NodeProto],
    inputs: dict[str, int],
    shape: Sequence[int],
    made: int,
    constants: dict[str, np.ndarray],
) -> Case:
    """Nodes on inputs of some types, which are ONNX's numbers for them."""
    given = [helper.make_tensor_value_info(one, element, shape) for one, element in inputs.items()]
    outputs = [helper.make_tensor_value_info("y", made, shape)]
    tensors = [numpy_helper.from_array(array, one) for one, array in constants.items()]
    graph = helper.make_graph(list(nodes), name, given, outputs, tensors)
    opsets = [helper.make_opsetid("", WIDE_OPSET), helper.make_opsetid("com.microsoft", 1)]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return Case(name, {MODEL: model.SerializeToString(deterministic=True)})
