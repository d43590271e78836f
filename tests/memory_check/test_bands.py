"""Chains in bands of rows touch only their own memory, at the edges of an image and where bands overlap."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from tests.memory_check.compiled import outputs_in_a_child, save


@pytest.mark.parametrize(
    "height, kernel, stride", [pytest.param(641, 3, 1, marks=pytest.mark.long), (1283, 5, 2)]
)
def test_a_chain_in_bands(height: int, kernel: int, stride: int, tmp_path: Path) -> None:
    generator = np.random.default_rng(height)
    depth, channels, width = 8, 64, 20
    constants = {
        "w1": (channels, depth, 1, 1),
        "w2": (channels, 1, kernel, kernel),
        "w3": (depth, channels, 1, 1),
        "b2": (channels,),
    }
    nodes = [
        helper.make_node("Constant", [], [name], value=_tensor(generator.normal(size=shape, scale=0.2)))
        for name, shape in constants.items()
    ]
    nodes += [
        helper.make_node("Conv", ["x", "w1"], ["wide"]),
        helper.make_node("Relu", ["wide"], ["bent"]),
        helper.make_node(
            "Conv",
            ["bent", "w2", "b2"],
            ["seen"],
            group=channels,
            strides=[stride, stride],
            pads=[kernel // 2] * 4,
        ),
        helper.make_node("Conv", ["seen", "w3"], ["narrow"]),
        # Something to read the result, which the model's own output would turn.
        helper.make_node("GlobalAveragePool", ["narrow"], ["mean"]),
        helper.make_node("Add", ["narrow", "mean"], ["y"]),
    ]
    x = generator.normal(size=(1, depth, height, width)).astype(np.float32)
    made = ((size + 2 * (kernel // 2) - kernel) // stride + 1 for size in (height, width))
    kind = (np.dtype(np.float32), (1, depth, *made))
    path = save(tmp_path / "model.onnx", nodes, {"x": x}, {"y": kind}, 17)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    wanted = session.run(None, {"x": x})
    [found] = outputs_in_a_child(path, [x], [x], wanted, kernel="chain")
    np.testing.assert_allclose(found, wanted[0], rtol=1e-4, atol=1e-5)


def _tensor(array: np.ndarray) -> onnx.TensorProto:
    return numpy_helper.from_array(array.astype(np.float32))
