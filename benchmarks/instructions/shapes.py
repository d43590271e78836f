"""Small operators of every class, at most 20 MFLOP each: the figures' own where small, else scaled."""

from __future__ import annotations

from benchmarks.operators.configurations import OPERATORS, Operator, convolution, dense

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


SMALL: tuple[Operator, ...] = (
    convolution("small_conv_7x7_s2", "ResNet-50's stem, 64x64 and 16 filters", (1, 3, 64, 64), 16, 7, 2),
    convolution("small_conv_3x3", "ResNet-50, 64 channels on 14x14", (1, 64, 14, 14), 64, 3, 1),
    convolution("small_conv_1x1", "ResNet-50, 256 to 64 channels on 14x14", (1, 256, 14, 14), 64, 1, 1),
    dense("small_matmul_64x256x256", "matmul", "BERT-base, a third of the width", 64, 256, 256),
    dense("small_matmul_49x192x96", "matmul", "ViT-tiny, a quarter of the rows", 49, 192, 96),
    dense("small_gemv_512x250_b8", "gemv", "ResNet-50, a quarter of the classifier", 8, 512, 250),
    Operator(
        "small_batched_4x64x64x64",
        "batched_matmul",
        "BERT-base, half a head",
        "MatMul",
        ((4, 64, 64), (4, 64, 64)),
    ),
    *(operator for operator in OPERATORS if operator.name in _BY_NAME),
)
