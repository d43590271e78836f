"""Small quantised ONNX models with ONNX Runtime's outputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from host.importers import load_here as load
from host.model import ImportedModel

Arrays = dict[str, np.ndarray]
node = helper.make_node
# ONNX Runtime adds two products in 16 bits on x86 processors without VNNI; of such weights that is exact.
SEVEN_BITS = 64


def draw(seed: int = 0) -> np.random.Generator:
    """A generator of its own for every model."""
    return np.random.default_rng(seed)


def model(
    folder: Path,
    nodes: Sequence[NodeProto],
    shape: Sequence[int],
    made: Sequence[int],
    constants: Arrays,
    opset: int = 17,
) -> ImportedModel:
    """A model from "x" of fp32 to "y" of fp32, imported, with golden outputs of ONNX Runtime."""
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, made)]
    body = helper.make_graph(list(nodes), "quantised", inputs, outputs, tensors)
    path = folder / "quantised.onnx"
    opsets = [helper.make_opsetid("", opset)]
    path.write_bytes(helper.make_model(body, opset_imports=opsets, ir_version=10).SerializeToString())
    onnx.checker.check_model(str(path))
    return load(path)


def pair(source: str, target: str, scale: str, zero: str) -> list[NodeProto]:
    """A tensor quantised and dequantised again."""
    names = [scale, zero]
    return [
        node("QuantizeLinear", [source, *names], [f"{target}q"]),
        node("DequantizeLinear", [f"{target}q", *names], [target]),
    ]


def activations(dtype: str) -> Arrays:
    """Scales and zero points of an input and of a result that is never below zero."""
    lowest = np.iinfo(dtype).min
    result = {"xs": np.float32(0.02), "xz": np.array(3 if dtype == "int8" else 120, dtype)}
    return {**result, "ys": np.float32(0.05), "yz": np.array(lowest, dtype)}


def weights(data: np.ndarray, zero: int = 0, axis: int = 0) -> Arrays:
    """Weights with a scale for each output channel, and a bias as quantisers write it."""
    count, generator = data.shape[axis], draw(1)
    scale = (generator.random((count,)) * 0.01 + 0.001).astype("float32")
    bias = generator.integers(-3000, 3000, count).astype("int32")
    found = {"w": data, "ws": scale, "wz": np.full(count, zero, data.dtype), "b": bias}
    return {**found, "bs": (np.float32(0.02) * scale).astype("float32"), "bz": np.zeros(count, "int32")}


def gemm(
    folder: Path,
    dtype: str = "uint8",
    rows: int = 7,
    depth: int = 42,
    columns: int = 36,
    opset: int = 17,
    in_floats: bool = False,
) -> ImportedModel:
    """QDQ around Gemm and Relu, weights transposed; `in_floats` has the file quantise them."""
    data = draw().integers(-SEVEN_BITS, SEVEN_BITS, (columns, depth)).astype("int8")
    nodes = [
        *pair("x", "xd", "xs", "xz"),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
        node("DequantizeLinear", ["b", "bs", "bz"], ["bd"], axis=0),
        node("Gemm", ["xd", "wd", "bd"], ["g"], transB=1),
        node("Relu", ["g"], ["r"]),
        *pair("r", "y", "ys", "yz"),
    ]
    constants = {**activations(dtype), **weights(data)}
    if in_floats:
        noise = draw(2).uniform(-0.4, 0.4, data.shape)
        constants["f"] = ((data + noise) * constants["ws"][:, None]).astype("float32")
        nodes = [node("QuantizeLinear", ["f", "ws", "wz"], ["w"], axis=0), *nodes]
        del constants["w"]
    return model(folder, nodes, (rows, depth), (rows, columns), constants, opset)


def convolution(folder: Path, dtype: str = "uint8", channels: int = 3, kernel: int = 3) -> ImportedModel:
    """QDQ around a convolution, and around a sum with its input's convolution by 1x1."""
    generator, out, half = draw(), 20, kernel // 2
    data = generator.integers(-SEVEN_BITS, SEVEN_BITS, (out, channels, kernel, kernel)).astype("int8")
    side = generator.integers(-SEVEN_BITS, SEVEN_BITS, (out, channels, 1, 1)).astype("int8")
    constants = {**activations(dtype), **weights(data), "v": side, "vs": np.float32(0.004), "vz": np.int8(0)}
    nodes = [
        *pair("x", "xd", "xs", "xz"),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
        node("DequantizeLinear", ["b", "bs", "bz"], ["bd"], axis=0),
        node("DequantizeLinear", ["v", "vs", "vz"], ["vd"]),
        node("Conv", ["xd", "wd", "bd"], ["c"], pads=[half] * 4, strides=[2, 2]),
        node("Conv", ["xd", "vd"], ["p"], strides=[2, 2]),
        *pair("c", "cd", "ys", "yz"),
        *pair("p", "pd", "ys", "yz"),
        node("Add", ["cd", "pd"], ["a"]),
        *pair("a", "y", "ys", "yz"),
    ]
    return model(folder, nodes, (1, channels, 9, 9), (1, out, 5, 5), constants)


def depthwise(
    folder: Path,
    dtype: str = "uint8",
    channels: int = 20,
    multiplier: int = 1,
    kernel: tuple[int, int] = (3, 3),
    stride: int = 1,
) -> ImportedModel:
    """QDQ around a convolution of each channel by itself, with padding above and on the left."""
    made, (high, wide) = channels * multiplier, kernel
    data = draw().integers(-SEVEN_BITS, SEVEN_BITS, (made, 1, high, wide)).astype("int8")
    constants = {**activations(dtype), **weights(data)}
    nodes = [
        *pair("x", "xd", "xs", "xz"),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
        node("DequantizeLinear", ["b", "bs", "bz"], ["bd"], axis=0),
        node(
            "Conv",
            ["xd", "wd", "bd"],
            ["c"],
            group=channels,
            pads=[high - 1, wide - 1, 0, 0],
            strides=[stride, stride],
        ),
        node("Relu", ["c"], ["r"]),
        *pair("r", "y", "ys", "yz"),
    ]
    side = 29
    out = (side - 1) // stride + 1
    return model(folder, nodes, (1, channels, side, side), (1, made, out, out), constants)


def separable(folder: Path, dtype: str = "uint8", channels: int = 16) -> ImportedModel:
    """QDQ around a 1x1 convolution, and around one of each channel behind it."""
    generator = draw()
    data = generator.integers(-SEVEN_BITS, SEVEN_BITS, (channels, 8, 1, 1)).astype("int8")
    each = generator.integers(-SEVEN_BITS, SEVEN_BITS, (channels, 1, 3, 3)).astype("int8")
    constants = {**activations(dtype), **weights(data), "v": each, "vs": np.float32(0.004), "vz": np.int8(0)}
    nodes = [
        *pair("x", "xd", "xs", "xz"),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
        node("DequantizeLinear", ["b", "bs", "bz"], ["bd"], axis=0),
        node("DequantizeLinear", ["v", "vs", "vz"], ["vd"]),
        node("Conv", ["xd", "wd", "bd"], ["c"]),
        *pair("c", "cd", "ys", "yz"),
        node("Conv", ["cd", "vd"], ["p"], group=channels, pads=[1] * 4),
        *pair("p", "y", "ys", "yz"),
    ]
    return model(folder, nodes, (1, 8, 9, 9), (1, channels, 9, 9), constants)


def grouped(
    folder: Path, dtype: str = "uint8", groups: int = 5, depth: int = 8, made: int = 12, stride: int = 1
) -> ImportedModel:
    """QDQ around a grouped convolution of 3x3, `depth` channels of each group to `made`."""
    data = draw().integers(-SEVEN_BITS, SEVEN_BITS, (groups * made, depth, 3, 3)).astype("int8")
    constants = {**activations(dtype), **weights(data)}
    nodes = [
        *pair("x", "xd", "xs", "xz"),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
        node("DequantizeLinear", ["b", "bs", "bz"], ["bd"], axis=0),
        node("Conv", ["xd", "wd", "bd"], ["c"], group=groups, pads=[1] * 4, strides=[stride] * 2),
        node("Relu", ["c"], ["r"]),
        *pair("r", "y", "ys", "yz"),
    ]
    out = (9 - 1) // stride + 1
    return model(folder, nodes, (1, groups * depth, 9, 9), (1, groups * made, out, out), constants)


def pooled(folder: Path, dtype: str = "uint8") -> ImportedModel:
    """QDQ, a maximum over windows with padding, QDQ with the same scale, and a convolution by 1x1."""
    data = draw().integers(-SEVEN_BITS, SEVEN_BITS, (24, 20, 1, 1)).astype("int8")
    constants = {**activations(dtype), "v": data, "vs": np.float32(0.004), "vz": np.int8(0)}
    nodes = [
        *pair("x", "xd", "xs", "xz"),
        node("DequantizeLinear", ["v", "vs", "vz"], ["vd"]),
        node("MaxPool", ["xd"], ["m"], kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2]),
        *pair("m", "md", "xs", "xz"),
        node("Conv", ["md", "vd"], ["c"]),
        *pair("c", "y", "ys", "yz"),
    ]
    return model(folder, nodes, (1, 20, 9, 9), (1, 24, 5, 5), constants)


def dynamic(folder: Path, dtype: str = "int8", zero: int = 0) -> ImportedModel:
    """A product quantised while the model runs, weights per tensor."""
    limits = np.iinfo(dtype)
    low, high = (-SEVEN_BITS, SEVEN_BITS) if dtype == "int8" else (limits.min, limits.max + 1)
    data = draw().integers(low, high, (24, 20)).astype(dtype)
    constants = {"w": data, "wz": np.array(zero, dtype), "ws": np.float32(0.01)}
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("MatMulInteger", ["q", "w", "z", "wz"], ["m"]),
        node("Cast", ["m"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["s", "ws"], ["t"]),
        node("Mul", ["f", "t"], ["y"]),
    ]
    return model(folder, nodes, (2, 5, 24), (2, 5, 20), constants)


def shuffled(folder: Path, dtype: str = "uint8", other_scale: bool = False) -> ImportedModel:
    """QDQ around two convolutions and around each part of a channel shuffle between them.

    Args:
        folder: of the file.
        dtype: of the activations.
        other_scale: whether the transpose's result has a scale of its own.
    """
    channels, side, groups = 24, 6, 3
    generator = draw()
    data, last = (
        generator.integers(-SEVEN_BITS, SEVEN_BITS, (channels, channels, size, size)).astype("int8")
        for size in (1, 3)
    )
    constants = {**activations(dtype), **weights(data)}
    constants |= {"v": last, "vs": np.float32(0.004), "vz": np.int8(0), "ts": np.float32(0.07)}
    constants["split"] = np.array([1, groups, channels // groups, side, side], "int64")
    constants["whole"] = np.array([1, channels, side, side], "int64")
    moved = "ts" if other_scale else "ys"
    nodes = [
        *pair("x", "xd", "xs", "xz"),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
        node("DequantizeLinear", ["b", "bs", "bz"], ["bd"], axis=0),
        node("DequantizeLinear", ["v", "vs", "vz"], ["vd"]),
        node("Conv", ["xd", "wd", "bd"], ["c"]),
        *pair("c", "cd", "ys", "yz"),
        node("Reshape", ["cd", "split"], ["r"]),
        *pair("r", "rd", "ys", "yz"),
        node("Transpose", ["rd"], ["t"], perm=[0, 2, 1, 3, 4]),
        *pair("t", "td", moved, "yz"),
        node("Reshape", ["td", "whole"], ["s"]),
        *pair("s", "sd", moved, "yz"),
        node("Conv", ["sd", "vd"], ["p"], pads=[1] * 4),
        *pair("p", "y", "ys", "yz"),
    ]
    shape = (1, channels, side, side)
    return model(folder, nodes, shape, shape, constants)
