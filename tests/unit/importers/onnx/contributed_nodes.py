"""Models of one contributed operator each, with small inputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

_DRAW = np.random.default_rng(0)
BATCH, LENGTH, HIDDEN, HEADS = 2, 5, 16, 4
SIZE = HIDDEN // HEADS


@dataclass(frozen=True)
class Case:
    """One node.

    Attributes:
        name: of the test.
        operator: its name.
        inputs: of the model, by name.
        constants: other inputs of the node.
        order: names of the node's inputs, "" for one that is left out; those of both tables if not given.
        outputs: indices of the outputs that are used.
        opset: version of the standard.
        attributes: of the node.
        domain: of the operator.
    """

    name: str
    operator: str
    inputs: dict[str, np.ndarray]
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    order: str = ""
    outputs: tuple[int, ...] = (0,)
    opset: int = 17
    attributes: dict[str, Any] = field(default_factory=dict)
    domain: str = "com.microsoft"

    def model(self) -> onnx.ModelProto:
        """The model; its outputs have names and no types."""
        names = self.order.split(" ") if self.order else [*self.inputs, *self.constants]
        results = [f"y{i}" if i in self.outputs else "" for i in range(max(self.outputs) + 1)]
        node = helper.make_node(
            self.operator, [one.replace("-", "") for one in names], results, domain=self.domain
        )
        node.attribute.extend(helper.make_attribute(*one) for one in self.attributes.items())
        declared = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(one.dtype), one.shape)
            for name, one in self.inputs.items()
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in results if name]
        tensors = [numpy_helper.from_array(one, name) for name, one in self.constants.items()]
        graph = helper.make_graph([node], "one", declared, outputs, tensors)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def floats(*shape: int) -> np.ndarray:
    """Normal numbers."""
    return _DRAW.standard_normal(shape).astype(np.float32)


def unsigned(*shape: int) -> np.ndarray:
    """Unsigned bytes."""
    return _DRAW.integers(0, 256, shape).astype(np.uint8)


def signed(*shape: int) -> np.ndarray:
    """Signed bytes."""
    return _DRAW.integers(-127, 128, shape).astype(np.int8)


def integers(high: int, *shape: int) -> np.ndarray:
    """Whole numbers from 0."""
    return _DRAW.integers(0, high, shape).astype(np.int32)


def scales(**values: float) -> dict[str, np.ndarray]:
    """Scales, and zero points of unsigned bytes where the name ends in z."""
    return {
        name: np.array(value, np.uint8 if name.endswith("z") else np.float32)
        for name, value in values.items()
    }


def _activations() -> list[Case]:
    x, bias = {"x": floats(3, 4)}, {"b": floats(4)}
    image, kernel = {"x": floats(1, 3, 8, 8)}, {"w": floats(4, 3, 3, 3), "b": floats(4)}
    leaky = {"activation": "LeakyRelu", "activation_params": [0.1], "pads": [1, 1, 1, 1]}
    clip = {"activation": "Clip", "activation_params": [0.0, 6.0]}
    gemm = {"transB": 1, "activation": "LeakyRelu", "activation_alpha": 0.2}
    one, other = floats(2, 3, 4), floats(2, 5, 4)
    return [
        Case("gelu", "Gelu", x),
        Case("bias_gelu", "BiasGelu", x, bias),
        Case("fast_gelu", "FastGelu", x, bias),
        Case("quick_gelu", "QuickGelu", x, attributes={"alpha": 1.5}),
        Case("conv_leaky_relu", "FusedConv", image, kernel, attributes=leaky),
        Case("conv_clip", "FusedConv", image, {"w": floats(4, 3, 3, 3)}, attributes=clip),
        Case(
            "conv_add_relu",
            "FusedConv",
            {**image, "z": floats(1, 4, 6, 6)},
            kernel,
            "x w b z",
            attributes={"activation": "Relu"},
        ),
        Case("gemm_leaky_relu", "FusedGemm", x, {"w": floats(5, 4), "b": floats(5)}, attributes=gemm),
        Case("product", "FusedMatMul", {"a": one, "b": other}, attributes={"transB": 1, "alpha": 0.5}),
        Case(
            "product_of_transposed",
            "FusedMatMul",
            {"a": floats(2, 4, 3), "b": floats(2, 4, 5)},
            attributes={"transA": 1},
        ),
        Case(
            "product_by_its_old_name",
            "TransposeMatMul",
            {"a": floats(2, 4, 3), "b": floats(2, 4, 5)},
            attributes={"transA": 1},
        ),
        Case("lower_triangle", "Trilu", {"x": floats(4, 5)}, attributes={"upper": 0}),
    ]


def _norms() -> list[Case]:
    x, both = {"x": floats(2, 3, 8)}, {"x": floats(2, 3, 8), "s": floats(2, 3, 8)}
    scale = {"g": floats(8)}
    rest = {"g": floats(8), "b": floats(8), "c": floats(8)}
    tokens = {"i": integers(10, BATCH, LENGTH), "t": integers(2, BATCH, LENGTH)}
    tables = {"w": floats(10, 8), "p": floats(7, 8), "k": floats(2, 8), "g": floats(8), "b": floats(8)}
    embedding = Case(
        "embedding",
        "EmbedLayerNormalization",
        {**tokens, "m": integers(2, BATCH, LENGTH)},
        tables,
        "i t w p k g b m",
        (0, 1, 2),
    )
    names = [f"{name}{part}" for part in "sz" for name in "wpkgb"]
    bytes_ = {name: unsigned(*table.shape) for name, table in tables.items()}
    bytes_ |= scales(**{name: 120 if name.endswith("z") else 0.02 for name in names})
    embedding_of_bytes = Case(
        "embedding_of_bytes",
        "QEmbedLayerNormalization",
        tokens,
        bytes_,
        f"i t w p k g b - {' '.join(names)}",
        (0, 1),
    )
    epsilon = {"epsilon": 1e-5}
    skipping = "SkipSimplifiedLayerNormalization"
    return [
        Case("root_mean_square", "SimplifiedLayerNormalization", x, scale, domain="", attributes=epsilon),
        Case("skip", "SkipLayerNormalization", both, rest, outputs=(0, 3), attributes=epsilon),
        Case("skip_root_mean_square", skipping, both, scale, outputs=(0, 3), opset=18),
        embedding,
        embedding_of_bytes,
    ]


def _attention() -> list[Case]:
    x = {"x": floats(BATCH, LENGTH, HIDDEN)}
    weights = {"w": floats(HIDDEN, 3 * HIDDEN), "b": floats(3 * HIDDEN)}
    heads = {"num_heads": HEADS}
    cases = [
        Case("attention", "Attention", x, weights, attributes=heads),
        Case(
            "attention_of_other_sizes",
            "Attention",
            x,
            {"w": floats(HIDDEN, 40), "b": floats(40)},
            attributes={**heads, "qkv_hidden_sizes": [8, 8, 24]},
        ),
        Case(
            "attention_with_a_cache",
            "Attention",
            {**x, "p": floats(2, BATCH, HEADS, 3, SIZE)},
            weights,
            "x w b - p",
            (0, 1),
            attributes={**heads, "unidirectional": 1},
        ),
        Case(
            "attention_with_addends",
            "Attention",
            {**x, "r": floats(1, HEADS, LENGTH, LENGTH)},
            weights,
            "x w b - - r",
            attributes=heads,
        ),
    ]
    masks = {
        "tokens": np.array([[1, 1, 1, 0, 0], [1] * 5], np.int32),
        "lengths": np.array([3, 5], np.int32),
        "ends_and_starts": np.array([3, 5, 1, 0], np.int32),
        "pairs": np.tri(5, dtype=np.int32)[None].repeat(2, 0),
    }
    for name, mask in masks.items():
        case = Case(f"attention_of_{name}", "Attention", x, {**weights, "m": mask}, "x w b m")
        cases.append(Case(**{**vars(case), "attributes": heads}))
    return cases


def _multi_head() -> list[Case]:
    query, heads = {"q": floats(BATCH, LENGTH, HIDDEN)}, {"num_heads": HEADS}
    longer = {"k": floats(BATCH, 7, HIDDEN), "v": floats(BATCH, 7, HIDDEN)}
    same = {"k": floats(BATCH, LENGTH, HIDDEN), "v": floats(BATCH, LENGTH, HIDDEN)}
    split = {"k": floats(BATCH, HEADS, 6, SIZE), "v": floats(BATCH, HEADS, 6, SIZE)}
    past = {"pk": floats(BATCH, HEADS, 3, SIZE), "pv": floats(BATCH, HEADS, 3, SIZE)}
    mask = {"m": np.array([[1] * 7, [1] * 4 + [0] * 3], np.int32)}
    name = "MultiHeadAttention"
    return [
        Case("heads", name, {**query, **longer}, {"b": floats(3 * HIDDEN)}, attributes=heads),
        Case("heads_masked", name, {**query, **longer}, mask, "q k v - m", attributes=heads),
        Case("heads_apart", name, {**query, **split}, attributes=heads),
        Case("heads_causal", name, {**query, **same}, attributes={**heads, "unidirectional": 1}),
        Case(
            "heads_with_a_cache",
            name,
            {**query, **same, **past},
            {},
            "q k v - - - pk pv",
            (0, 1, 2),
            attributes=heads,
        ),
    ]


def _rotary() -> list[Case]:
    x = {"x": floats(BATCH, LENGTH, HIDDEN), "p": np.arange(LENGTH)[None].repeat(BATCH, 0)}
    apart = {"x": floats(BATCH, HEADS, LENGTH, SIZE), "p": np.array([2])}
    whole, part = ({"c": floats(9, half), "s": floats(9, half)} for half in (2, 1))
    partly = {"num_heads": HEADS, "rotary_embedding_dim": 2}
    return [
        Case("rotary", "RotaryEmbedding", x, whole),
        Case("rotary_in_pairs", "RotaryEmbedding", apart, whole, attributes={"interleaved": 1}),
        Case("rotary_in_part", "RotaryEmbedding", x, part, attributes=partly),
    ]


def _quantised_elementwise() -> list[Case]:
    pair, of_pair = {"a": unsigned(2, 8), "b": unsigned(2, 8)}, "a as az b bs bz cs cz"
    two = scales(**{"as": 0.1, "az": 128, "bs": 0.05, "bz": 100, "cs": 0.12, "cz": 120})
    one = scales(**{"as": 0.1, "az": 128, "cs": 0.02, "cz": 128})
    of_signs = {"a": signed(2, 8), "b": signed(2, 8)}
    steps = {**scales(**{"as": 0.1, "bs": 0.05, "cs": 0.12}), "az": np.int8(3), "bz": np.int8(-5)}
    parts = {"a": unsigned(1, 3), "b": unsigned(1, 4)}
    chosen = {"c": _DRAW.random((2, 8)) < 0.5, **pair}
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    last = {"channels_last": 1}
    return [
        Case("bytes_add", "QLinearAdd", pair, two, of_pair),
        Case("signed_bytes_add", "QLinearAdd", of_signs, steps, "a as az b bs bz cs"),
        Case("signed_bytes_multiply", "QLinearMul", of_signs, steps, "a as az b bs bz cs"),
        Case("bytes_multiply", "QLinearMul", pair, two, of_pair),
        Case("bytes_sigmoid", "QLinearSigmoid", {"a": unsigned(2, 8)}, one),
        Case("bytes_leaky_relu", "QLinearLeakyRelu", {"a": unsigned(2, 8)}, one, attributes={"alpha": 0.2}),
        Case("bytes_pool", "QLinearAveragePool", {"a": unsigned(1, 3, 6, 6)}, one, attributes=pool),
        Case("bytes_mean", "QLinearGlobalAveragePool", {"a": unsigned(1, 3, 5, 5)}, one),
        Case(
            "bytes_mean_last", "QLinearGlobalAveragePool", {"a": unsigned(1, 5, 5, 3)}, one, attributes=last
        ),
        Case("bytes_concat", "QLinearConcat", parts, two, "cs cz a as az b bs bz", attributes={"axis": 1}),
        Case("bytes_softmax", "QLinearSoftmax", {"a": unsigned(2, 8)}, one, attributes={"opset": 13}),
        Case("bytes_where", "QLinearWhere", chosen, two, "c a as az b bs bz cs cz"),
        Case(
            "words_of_reals",
            "QuantizeLinear",
            {"x": floats(2, 3)},
            {"s": np.float32(0.001), "z": np.uint16(30000)},
        ),
        Case(
            "words",
            "DequantizeLinear",
            {"x": _DRAW.integers(0, 60000, (2, 3)).astype(np.uint16)},
            {"s": np.float32(0.01), "z": np.uint16(30000)},
        ),
    ]


def _quantised_products() -> list[Case]:
    rows, zero = {"a": unsigned(3, 16)}, np.array([0], np.int8)
    bias = integers(500, 5)
    by_column = {"b": signed(5, 16), "bs": floats(5) ** 2 + 0.01, "bz": np.zeros(5, np.int8), "c": bias}
    single = {"b": signed(16, 5), "bs": np.float32([0.02]), "bz": zero}
    of_a = scales(**{"as": 0.1, "az": 120})
    result = scales(cs=200.0, cz=128)
    attended = {"w": signed(HIDDEN, 3 * HIDDEN), "b": floats(3 * HIDDEN)}
    attended |= {**scales(xs=0.01, ws=0.01, xz=128), "z": np.array(0, np.int8)}
    heads = {"num_heads": HEADS}
    order = "a as az b bs bz c cs cz"
    return [
        Case("gemm", "QGemm", rows, {**of_a, **by_column, **result}, order, attributes={"transB": 1}),
        Case("gemm_to_reals", "QGemm", rows, {**of_a, **single, "c": bias}, "a as az b bs bz c"),
        Case("product_to_reals", "MatMulIntegerToFloat", rows, {**of_a, **single}, "a b as bs az bz"),
        Case("product_of_reals", "DynamicQuantizeMatMul", {"a": floats(3, 16)}, {**single, "c": floats(5)}),
        Case(
            "attention_of_bytes",
            "QAttention",
            {"x": unsigned(BATCH, LENGTH, HIDDEN)},
            attended,
            "x w b xs ws - xz z",
            attributes=heads,
        ),
    ]


def _few_bits() -> list[Case]:
    sizes = {"K": 40, "N": 6, "block_size": 32}
    packed = {"b": unsigned(6, 2, 16), "s": floats(12)}
    bytes_ = {"b": unsigned(6, 2, 32), "s": floats(12)}
    x, bias = {"a": floats(3, 40)}, {"c": floats(6)}
    return [
        Case("four_bits", "MatMulNBits", x, packed, attributes={**sizes, "bits": 4}),
        Case(
            "four_bits_with_zeros",
            "MatMulNBits",
            x,
            {**packed, "z": unsigned(6), **bias},
            "a b s z - c",
            attributes={**sizes, "bits": 4},
        ),
        Case("eight_bits", "MatMulNBits", x, bytes_, attributes={**sizes, "bits": 8}),
    ]


CASES = (
    *_activations(),
    *_norms(),
    *_attention(),
    *_multi_head(),
    *_rotary(),
    *_quantised_elementwise(),
    *_quantised_products(),
    *_few_bits(),
)
