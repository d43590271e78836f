"""Small operators of every class, at most 20 MFLOP each: the figures' own where small, else scaled."""

from __future__ import annotations

from benchmarks.operators.configurations import OPERATORS, Operator

MAX_FLOP = 20e6
_BY_NAME = (
    "gemv_768x3072",
    "maxpool_3x3_s2_64_112",
    "avgpool_2x2_s2_128_56",
    "depthwise_3x3_32_112",
    "depthwise_3x3_s2_144_56",
    "softmax_12x128x128",
    "layer_norm_128x768",
)


def _conv(
    name: str, origin: str, channels: int, size: int, filters: int, kernel: int, stride: int
) -> Operator:
    attributes = {
        "kernel_shape": [kernel] * 2,
        "strides": [stride] * 2,
        "pads": [kernel // 2] * 4,
        "group": 1,
    }
    weights = ((filters, channels, kernel, kernel), (filters,))
    shape = (1, channels, size, size)
    return Operator(name, "conv2d", origin, "Conv", (shape,), weights, attributes, image=True)


def _dense(name: str, kind: str, origin: str, rows: int, depth: int, columns: int) -> Operator:
    return Operator(name, kind, origin, "MatMul", ((rows, depth),), ((depth, columns),))


SMALL: tuple[Operator, ...] = (
    _conv("small_conv_7x7_s2", "ResNet-50's stem, 64x64 and 16 filters", 3, 64, 16, 7, 2),
    _conv("small_conv_3x3", "ResNet-50, 64 channels on 14x14", 64, 14, 64, 3, 1),
    _conv("small_conv_1x1", "ResNet-50, 256 to 64 channels on 14x14", 256, 14, 64, 1, 1),
    _dense("small_matmul_64x256x256", "matmul", "BERT-base, a third of the width", 64, 256, 256),
    _dense("small_matmul_49x192x96", "matmul", "ViT-tiny, a quarter of the rows", 49, 192, 96),
    _dense("small_gemv_512x250_b8", "gemv", "ResNet-50, a quarter of the classifier", 8, 512, 250),
    Operator(
        "small_batched_4x64x64x64",
        "batched_matmul",
        "BERT-base, half a head",
        "MatMul",
        ((4, 64, 64), (4, 64, 64)),
    ),
    *(operator for operator in OPERATORS if operator.name in _BY_NAME),
)
