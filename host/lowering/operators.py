"""What the operations of the graph are.

Elementwise (inputs broadcast together): the names in `UNARY`, `BINARY`, "where", "clip"
(attrs low, high), "cast"; "dequantize" (x, scale, zero point: (x - zero) * scale) and
"quantize" (the same: round(x / scale) + zero, ties to even, saturated).  Movement: "reshape",
"transpose" (axes), "broadcast", "concat" (axis), "slice" (begin, strides per dimension),
"pad" (before, after, value), "take" (axis, mode).
Reductions: `REDUCTIONS` (axes, keepdims).

Anchors, all with channels last:
    "conv"       x [N, *S, C], weight [*K, C/groups, O]; strides, padding (before + after), dilation, groups
    "conv_transpose"  x [N, *S, C], weight [*K, C, O/groups]; output_padding besides
    "dense"      x [..., K] times constant weight [K, N]
    "matmul"     two activations
    "integer_conv", "integer_dense"  the same of bytes into int32, constant weights; a convolution's
                 padding holds `fill`. Arranged for dot products: "dot_conv", "dot_dense"
    "pool"       kind max|average, kernel, strides, dilation, padding, count_pad
    "softmax", "log_softmax" over the last axis; "layer_norm", "rms_norm" over the last `dims` dimensions
"""

from __future__ import annotations

_UNARY_NAMES = """
    abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh erf exp floor gelu gelu_tanh
    hard_sigmoid hard_swish isfinite isinf isnan leaky_relu log logical_not negative relu round
    rsqrt sigmoid sign silu sin sinh softplus sqrt square tan tanh trunc selu reciprocal
"""
_BINARY_NAMES = """
    add subtract multiply divide floor_divide power maximum minimum mod floor_mod equal not_equal
    less less_equal greater greater_equal logical_and logical_or logical_xor bitwise_and bitwise_or
    bitwise_xor left_shift right_shift prelu
"""
UNARY = frozenset(_UNARY_NAMES.split())
BINARY = frozenset(_BINARY_NAMES.split())
ELEMENTWISE = UNARY | BINARY | {"where", "clip", "cast", "broadcast", "quantize", "dequantize"}
REDUCTIONS = frozenset({"sum", "mean", "max", "min", "prod", "variance"})
CONTRACTIONS = frozenset({"conv", "conv_transpose", "dense", "matmul", "integer_conv", "integer_dense"})
ROW_WISE = frozenset({"softmax", "log_softmax", "layer_norm", "rms_norm"})
ANCHORS = CONTRACTIONS | ROW_WISE | REDUCTIONS | {"pool"}
COMPARISONS = frozenset({"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"})
