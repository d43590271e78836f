"""ONNX models of one product each, in bytes and in fp32."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from onnx import TensorProto, helper, numpy_helper


@dataclass(frozen=True)
class Operator:
    """Shape of the data as ONNX has it, and of the weights."""

    name: str
    data: tuple[int, ...]
    weights: tuple[int, ...]

    @property
    def is_convolution(self) -> bool:
        """Whether it is no matrix product."""
        return len(self.data) == 4

    @property
    def multiply_adds(self) -> float:
        """Multiplications of one run, each with its addition."""
        size = float(np.prod(self.weights))
        return size * (np.prod(self.data[2:]) if self.is_convolution else self.data[0])


OPERATORS = (
    Operator("matmul_128x768x768", (128, 768), (768, 768)),
    Operator("matmul_128x768x3072", (128, 768), (768, 3072)),
    Operator("gemv_768x3072", (1, 768), (768, 3072)),
    Operator("conv3x3_64_56x56", (1, 64, 56, 56), (64, 64, 3, 3)),
    Operator("conv1x1_256_64_56x56", (1, 256, 56, 56), (64, 256, 1, 1)),
    Operator("conv1x1_512_256_14x14", (1, 512, 14, 14), (256, 512, 1, 1)),
)


def integer_model(operator: Operator, path: Path, library: bool) -> None:
    """Write the quantised operator: bytes in, bytes out; images with channels last in and out."""
    draw = np.random.default_rng(0)
    channels = operator.weights[0 if operator.is_convolution else 1]
    constants: dict[str, ArrayLike] = {
        "w": draw.integers(-127, 128, operator.weights).astype("int8"),
        "ws": (draw.random(channels) * 1e-3 + 1e-4).astype("float32"),
        "wz": np.zeros(channels, "int8"),
        "xs": np.float32(0.02),
        "xz": np.uint8(120),
        "ys": np.float32(0.1),
        "yz": np.uint8(128),
    }
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    attributes: dict[str, object] = {}
    if operator.is_convolution:
        attributes = {"pads": [operator.weights[2] // 2] * 4}
    if operator.is_convolution and library:
        attributes |= {"channels_last": 1, "domain": "com.microsoft"}
    kind = "QLinearConv" if operator.is_convolution else "QLinearMatMul"
    _write(path, operator, kind, names, attributes, constants, library)


def plain_model(operator: Operator, path: Path) -> None:
    """Write the same operator in fp32."""
    weights = np.random.default_rng(0).normal(size=operator.weights).astype("float32")
    attributes: dict[str, object] = {}
    if operator.is_convolution:
        attributes = {"pads": [operator.weights[2] // 2] * 4}
    kind = "Conv" if operator.is_convolution else "MatMul"
    _write(path, operator, kind, ["x", "w"], attributes, {"w": weights}, False)


def _write(
    path: Path,
    operator: Operator,
    kind: str,
    names: list[str],
    attributes: dict[str, object],
    constants: Mapping[str, ArrayLike],
    library: bool,
) -> None:
    """A model of one node; an image is transposed around it unless the node has channels last itself."""
    dtype = TensorProto.UINT8 if kind.startswith("Q") else TensorProto.FLOAT
    if not operator.is_convolution or library:
        nodes = [helper.make_node(kind, names, ["y"], **attributes)]
    else:
        nodes = [
            helper.make_node("Transpose", ["x"], ["first"], perm=[0, 3, 1, 2]),
            helper.make_node(kind, ["first", *names[1:]], ["last"], **attributes),
            helper.make_node("Transpose", ["last"], ["y"], perm=[0, 2, 3, 1]),
        ]
    data = operator.data
    if operator.is_convolution:
        data = tuple(data[i] for i in (0, 2, 3, 1))
    made = (*data[:-1], operator.weights[0 if operator.is_convolution else 1])
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    inputs = [helper.make_tensor_value_info("x", dtype, data)]
    outputs = [helper.make_tensor_value_info("y", dtype, made)]
    body = helper.make_graph(nodes, "operator", inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    path.write_bytes(helper.make_model(body, opset_imports=opsets, ir_version=10).SerializeToString())
