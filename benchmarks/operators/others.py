"""Operators beside the 32 of the figures, of shapes that nothing was made for: `--only others`."""

from __future__ import annotations

from typing import Any

from benchmarks.operators.configurations import Operator

_Shape = tuple[int, ...]


def _of(
    name: str, node: str, *inputs: _Shape, weights: tuple[_Shape, ...] = (), **attributes: Any
) -> Operator:
    return Operator(name, "others", "none", node, inputs, weights, attributes)


def _image(
    name: str, node: str, data: _Shape, weights: tuple[_Shape, ...] = (), **attributes: Any
) -> Operator:
    return Operator(name, "others", "none", node, (data,), weights, attributes, image=True)


def _conv(
    name: str,
    data: _Shape,
    channels: int,
    kernel: tuple[int, int],
    stride: int = 1,
    group: int = 1,
    dilation: int = 1,
    padded: bool = True,
) -> Operator:
    pads = [dilation * (size // 2) if padded else 0 for size in kernel] * 2
    return _image(
        name,
        "Conv",
        data,
        ((channels, data[1] // group, *kernel), (channels,)),
        kernel_shape=list(kernel),
        strides=[stride] * 2,
        dilations=[dilation] * 2,
        pads=pads,
        group=group,
    )


def _pool(name: str, node: str, data: _Shape, kernel: int, stride: int, pad: int) -> Operator:
    return _image(name, node, data, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)


def _dense(name: str, rows: int, depth: int, columns: int) -> Operator:
    return _of(name, "MatMul", (rows, depth), weights=((depth, columns),))


OTHERS: tuple[Operator, ...] = (
    _conv("depthwise_5x5_72_28", (1, 72, 28, 28), 72, (5, 5), group=72),
    _conv("depthwise_5x5_s2_240_28", (1, 240, 28, 28), 240, (5, 5), 2, 240),
    _conv("depthwise_7x7_384_14", (1, 384, 14, 14), 384, (7, 7), group=384),
    _conv("conv_3x3_dilated_256_28", (1, 256, 28, 28), 256, (3, 3), dilation=2),
    _conv("conv_3x3_32_groups_128_56", (1, 128, 56, 56), 128, (3, 3), group=32),
    _conv("conv_5x5_2_groups_96_27", (1, 96, 27, 27), 256, (5, 5), group=2),
    _conv("conv_1x7_128_17", (1, 128, 17, 17), 128, (1, 7)),
    _conv("conv_16x16_s16_3_224", (1, 3, 224, 224), 192, (16, 16), 16, padded=False),
    _conv("conv_11x11_s4_3_224", (1, 3, 224, 224), 64, (11, 11), 4),
    _conv("conv_3x3_12_20_64", (1, 12, 64, 64), 20, (3, 3)),
    _conv("conv_5x5_6_16_14", (1, 6, 14, 14), 16, (5, 5), padded=False),
    _dense("matmul_50x768x3072", 50, 768, 3072),
    _dense("matmul_77x512x2048", 77, 512, 2048),
    _dense("matmul_1x4096x4096", 1, 4096, 4096),
    _dense("matmul_7x1024x1024", 7, 1024, 1024),
    _dense("matmul_13x100x37", 13, 100, 37),
    _dense("matmul_300x300x300", 300, 300, 300),
    _dense("matmul_49x2048x512", 49, 2048, 512),
    _dense("matmul_49x512x2048", 49, 512, 2048),
    _dense("matmul_49x384x384", 49, 384, 384),
    _dense("matmul_197x384x1536", 197, 384, 1536),
    _dense("matmul_512x64x4096", 512, 64, 4096),
    _dense("matmul_784x768x192", 784, 768, 192),
    _dense("matmul_1500x384x1536", 1500, 384, 1536),
    _of("batched_12x197x64x197", "MatMul", (12, 197, 64), (12, 64, 197)),
    _of("batched_8x1x64x512", "MatMul", (8, 1, 64), (8, 64, 512)),
    _of("batched_32x1x128x1024", "MatMul", (32, 1, 128), (32, 128, 1024)),
    _of("batched_12x4x64x512", "MatMul", (12, 4, 64), (12, 64, 512)),
    _of("batched_8x1x512x64", "MatMul", (8, 1, 512), (8, 512, 64)),
    _pool("avgpool_3x3_192_28", "AveragePool", (1, 192, 28, 28), 3, 1, 1),
    _pool("maxpool_5x5_256_20", "MaxPool", (1, 256, 20, 20), 5, 1, 2),
    _of("mean_1280x7x7", "GlobalAveragePool", (1, 1280, 7, 7)),
    _of("maximum_512x7x7", "GlobalMaxPool", (1, 512, 7, 7)),
    _of("softmax_3x197x197", "Softmax", (3, 197, 197), axis=-1),
    _of("softmax_4x300x300", "Softmax", (4, 300, 300), axis=-1),
    _of("softmax_8x50x50", "Softmax", (8, 50, 50), axis=-1),
    _of("softmax_8x77x77", "Softmax", (8, 77, 77), axis=-1),
    _of("softmax_12x100x100", "Softmax", (12, 100, 100), axis=-1),
    _of("softmax_4x30522", "Softmax", (4, 30522), axis=-1),
    _of("log_softmax_64x1001", "LogSoftmax", (64, 1001), axis=-1),
    _of("layer_norm_77x300", "LayerNormalization", (77, 300), weights=((300,), (300,)), axis=-1),
    _of("instance_norm_64x37x37", "InstanceNormalization", (1, 64, 37, 37), weights=((64,), (64,))),
    _of("instance_norm_64x64x64", "InstanceNormalization", (1, 64, 64, 64), weights=((64,), (64,))),
    _of("arg_max_64x1001", "ArgMax", (64, 1001), axis=-1),
    _of("relu_64x56x56", "Relu", (1, 64, 56, 56)),
    _of("add_256x56x56", "Add", (1, 256, 56, 56), (1, 256, 56, 56)),
    _of("add_mask_12x197x197", "Add", (12, 197, 197), (1, 1, 197)),
    _of("mul_by_channel_64x56x56", "Mul", (1, 64, 56, 56), (1, 64, 1, 1)),
    _of("div_by_row_197x197", "Div", (197, 197), (197, 1)),
    _of("leaky_relu_32x52x52", "LeakyRelu", (1, 32, 52, 52), alpha=0.1),
    _of("sigmoid_64x56x56", "Sigmoid", (1, 64, 56, 56)),
    _of("erf_128x3072", "Erf", (128, 3072)),
    _of("pow_128x3072", "Pow", (128, 3072), (1,)),
    _of("sin_128x512", "Sin", (128, 512)),
    _of("concat_64_128_28", "Concat", (1, 64, 28, 28), (1, 128, 28, 28), axis=1),
    _of("transpose_to_last_64x56x56", "Transpose", (1, 64, 56, 56), perm=[0, 2, 3, 1]),
    _of("transpose_windows_56x56x96", "Transpose", (1, 8, 7, 8, 7, 96), perm=[0, 1, 3, 2, 4, 5]),
    _of("transpose_1000x333", "Transpose", (1000, 333), perm=[1, 0]),
    _of("depth_to_space_48x64x64", "DepthToSpace", (1, 48, 64, 64), blocksize=4),
)
