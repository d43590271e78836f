"""The 32 operators of the figures: shapes of real networks, batch 1 and 8."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

CLASSES = ("conv2d", "matmul", "gemv", "pooling", "depthwise", "batched_matmul", "softmax", "layer_norm")


@dataclass(frozen=True)
class Operator:
    """One ONNX node.

    Attributes:
        name: key in the results.
        kind: one of `CLASSES`, or "others".
        origin: the network that the shape is of.
        node: ONNX operator type.
        inputs: shapes of the activations, images as NCHW.
        weights: shapes of the constants.
        attributes: of the node.
        image: whether activations are images, which our lowering keeps as NHWC.
    """

    name: str
    kind: str
    origin: str
    node: str
    inputs: tuple[tuple[int, ...], ...]
    weights: tuple[tuple[int, ...], ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    image: bool = False


def convolution(
    name: str,
    origin: str,
    data: tuple[int, int, int, int],
    channels: int,
    kernel: int,
    stride: int = 1,
    groups: int = 1,
) -> Operator:
    """A convolution of data (N, C, H, W), depthwise where each channel is a group."""
    attributes = {
        "kernel_shape": [kernel, kernel],
        "strides": [stride, stride],
        "pads": [kernel // 2] * 4,
        "group": groups,
    }
    weights = ((channels, data[1] // groups, kernel, kernel), (channels,))
    kind = "depthwise" if groups == channels else "conv2d"
    return Operator(name, kind, origin, "Conv", (data,), weights, attributes, image=True)


def dense(name: str, kind: str, origin: str, rows: int, depth: int, columns: int) -> Operator:
    """A product of (rows, depth) and weights (depth, columns)."""
    return Operator(name, kind, origin, "MatMul", ((rows, depth),), ((depth, columns),))


def _pool(
    name: str, origin: str, node: str, data: tuple[int, int, int, int], kernel: int, stride: int, pad: int
) -> Operator:
    attributes = {"kernel_shape": [kernel, kernel], "strides": [stride, stride], "pads": [pad] * 4}
    return Operator(name, "pooling", origin, node, (data,), (), attributes, image=True)


def _batched(name: str, origin: str, batch: int, rows: int, depth: int, columns: int) -> Operator:
    shapes = ((batch, rows, depth), (batch, depth, columns))
    return Operator(name, "batched_matmul", origin, "MatMul", shapes)


def _softmax(name: str, origin: str, shape: tuple[int, ...]) -> Operator:
    return Operator(name, "softmax", origin, "Softmax", (shape,), (), {"axis": -1})


def _layer_norm(name: str, origin: str, shape: tuple[int, ...]) -> Operator:
    width = (shape[-1],)
    return Operator(name, "layer_norm", origin, "LayerNormalization", (shape,), (width, width), {"axis": -1})


OPERATORS: tuple[Operator, ...] = (
    convolution("conv_stem_7x7_s2", "ResNet-50", (1, 3, 224, 224), 64, 7, 2),
    convolution("conv_3x3_64_56", "ResNet-50", (1, 64, 56, 56), 64, 3),
    convolution("conv_3x3_128_28", "ResNet-50", (1, 128, 28, 28), 128, 3),
    convolution("conv_3x3_256_14", "ResNet-50", (1, 256, 14, 14), 256, 3),
    convolution("conv_3x3_512_7", "ResNet-50", (1, 512, 7, 7), 512, 3),
    convolution("conv_1x1_64_256_56", "ResNet-50", (1, 64, 56, 56), 256, 1),
    convolution("conv_1x1_1024_256_14", "ResNet-50", (1, 1024, 14, 14), 256, 1),
    convolution("conv_1x1_24_144_56", "MobileNetV2", (1, 24, 56, 56), 144, 1),
    convolution("conv_3x3_128_28_b8", "ResNet-50", (8, 128, 28, 28), 128, 3),
    dense("matmul_128x768x768", "matmul", "BERT-base, attention", 128, 768, 768),
    dense("matmul_128x768x3072", "matmul", "BERT-base, feed forward", 128, 768, 3072),
    dense("matmul_128x3072x768", "matmul", "BERT-base, feed forward", 128, 3072, 768),
    dense("matmul_197x192x576", "matmul", "ViT-tiny, attention", 197, 192, 576),
    dense("matmul_1024x768x768_b8", "matmul", "BERT-base, attention", 1024, 768, 768),
    dense("gemv_2048x1000", "gemv", "ResNet-50, classifier", 1, 2048, 1000),
    dense("gemv_768x3072", "gemv", "GPT-2, feed forward of one token", 1, 768, 3072),
    dense("gemv_3072x768", "gemv", "GPT-2, feed forward of one token", 1, 3072, 768),
    dense("gemv_2048x1000_b8", "gemv", "ResNet-50, classifier", 8, 2048, 1000),
    _pool("maxpool_3x3_s2_64_112", "ResNet-50", "MaxPool", (1, 64, 112, 112), 3, 2, 1),
    _pool("avgpool_2x2_s2_128_56", "DenseNet-121", "AveragePool", (1, 128, 56, 56), 2, 2, 0),
    Operator(
        "avgpool_global_2048_7", "pooling", "ResNet-50", "GlobalAveragePool", ((1, 2048, 7, 7),), image=True
    ),
    _pool("maxpool_3x3_s2_64_112_b8", "ResNet-50", "MaxPool", (8, 64, 112, 112), 3, 2, 1),
    convolution("depthwise_3x3_32_112", "MobileNetV2", (1, 32, 112, 112), 32, 3, groups=32),
    convolution("depthwise_3x3_s2_144_56", "MobileNetV2", (1, 144, 56, 56), 144, 3, 2, groups=144),
    convolution("depthwise_7x7_96_56", "ConvNeXt-tiny", (1, 96, 56, 56), 96, 7, groups=96),
    convolution("depthwise_3x3_384_14_b8", "MobileNetV2", (8, 384, 14, 14), 384, 3, groups=384),
    _batched("batched_12x128x64x128", "BERT-base, scores", 12, 128, 64, 128),
    _batched("batched_96x128x128x64_b8", "BERT-base, context", 96, 128, 128, 64),
    _softmax("softmax_12x128x128", "BERT-base", (12, 128, 128)),
    _softmax("softmax_24x197x197_b8", "ViT-tiny", (24, 197, 197)),
    _layer_norm("layer_norm_128x768", "BERT-base", (128, 768)),
    _layer_norm("layer_norm_1024x768_b8", "BERT-base", (1024, 768)),
)


def select(names: Sequence[str], among: Sequence[Operator] = OPERATORS) -> tuple[Operator, ...]:
    """Operators by name, all of them if no name is given; a class's name stands for its operators.

    Raises:
        KeyError: an unknown name.
    """
    if not names:
        return tuple(among)
    known = {name for operator in among for name in (operator.name, operator.kind)}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise KeyError(f"{', '.join(unknown)}; there are {', '.join(sorted(known))}")
    return tuple(operator for operator in among if {operator.name, operator.kind} & set(names))
