"""All elementwise operators of ONNX by all types that ONNX Runtime computes them in, a model for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper

from tests.unit.importers.every_type.lowered_models import both, lowered_as_onnxruntime, taken

_OF_ONE = (
    "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid "
    "HardSwish Identity IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Sigmoid "
    "Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh ThresholdedRelu"
)
_OF_TWO = (
    "Add And BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min "
    "Mul Or PRelu Sub Sum Xor"
)
_INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_FLOATS = ("float16", "float32", "float64")
_TYPES = ("bool", *_INTEGERS, *_FLOATS)
# How far results may be off, for a number of 1.
_RELATIVE = {"float16": 4e-3, "float32": 1e-4, "float64": 1e-10}
# ONNX Runtime computes remainders of 64 bits in double precision. Zero times an infinity, which the others
# have in them, is NaN or not by how they are written.
_LEFT_OUT = {
    **dict.fromkeys(("int64", "uint64"), ("y_fmod",)),
    **dict.fromkeys(_FLOATS, ("y_Gelu", "y_PRelu")),
}


def _numbers(dtype: str) -> np.ndarray:
    if dtype == "bool":
        return np.array([False, True])
    if dtype in _FLOATS:
        # NaN, which maxima keep where all of the build is used, is in `tests/memory_check/special_values.py`.
        special = [np.inf, -np.inf, 0, -0.0]
        return np.array([*special, 1, -1, 0.5, -0.5, 2.5, -2.5, 3, -7, 0.3, 0.9, 100, 1e-3], dtype)
    ends = np.iinfo(dtype)
    below = [-1, -2, -3, -7, ends.min, ends.min + 1] if ends.min else []
    return np.array([0, 1, 2, 3, 5, 7, 100, ends.max, ends.max - 1, *below], dtype)


def _pairs(dtype: str) -> dict[str, np.ndarray]:
    """Two operands; none that divides by zero, or the least number by -1, which ONNX Runtime cannot."""
    left, right = (side.reshape(-1) for side in np.meshgrid(_numbers(dtype), _numbers(dtype)))
    if dtype in _INTEGERS:
        kept = (right != 0) & ~((left == np.iinfo(dtype).min) & (right.astype("float64") == -1))
        left, right = left[kept], right[kept]
    test, ends = np.arange(left.size) % 3 == 0, np.array([1, 5], dtype)
    return {"a": left, "b": right, "low": ends[:1].reshape(()), "high": ends[1:].reshape(()), "test": test}


def _nodes(dtype: str) -> Iterator[NodeProto]:
    for names, inputs in ((_OF_ONE, ["a"]), (_OF_TWO, ["a", "b"])):
        for operator in names.split():
            yield helper.make_node(operator, inputs, [f"y_{operator}"])
    for direction in ("LEFT", "RIGHT"):
        yield helper.make_node("BitShift", ["a", "b"], [f"y_{direction}"], direction=direction)
    yield helper.make_node("Clip", ["a", "low", "high"], ["y_Clip"])
    yield helper.make_node("Where", ["test", "a", "b"], ["y_Where"])
    yield helper.make_node("Mod", ["a", "b"], ["y_fmod"], fmod=1)
    if dtype not in _FLOATS:
        yield helper.make_node("Mod", ["a", "b"], ["y_Mod"])


@pytest.mark.parametrize("dtype", _TYPES)
def test_results_are_those_of_onnx_runtime(tmp_path: Path, dtype: str) -> None:
    inputs = _pairs(dtype)
    nodes = [node for node in _nodes(dtype) if taken([node], _read(inputs, [node]))]
    nodes = [node for node in nodes if node.output[0] not in _LEFT_OUT.get(dtype, ())]
    assert len(nodes) >= (5 if dtype == "bool" else 18)
    relative = _RELATIVE.get(dtype, 0.0)
    lowered_as_onnxruntime(tmp_path / "model.onnx", nodes, _read(inputs, nodes), relative)


def _read(inputs: Mapping[str, np.ndarray], nodes: Sequence[NodeProto]) -> dict[str, np.ndarray]:
    names = {name for node in nodes for name in node.input}
    return {name: array for name, array in inputs.items() if name in names}


@pytest.mark.parametrize("base", ["int32", "int64", *_FLOATS])
def test_powers_with_exponents_of_other_types(tmp_path: Path, base: str) -> None:
    nodes, inputs = [], {}
    for kind in ("int32", "int64", *_FLOATS):
        exponents = np.array([0, 1, 2, 3, 5, 7, -1, -2, 0.5, 1.5]).astype(kind)
        bases, powers = (side.reshape(-1) for side in np.meshgrid([0, 1, -1, 2, 3, -3, 10, 5], exponents))
        # Of a whole number, ONNX Runtime leaves anything of an infinity or of NaN.
        whole = (powers == np.trunc(powers)) | (bases > 0)
        kept = ((bases != 0) | (powers >= 0)) & whole if base in _INTEGERS else np.full(bases.shape, True)
        inputs |= {f"a_{kind}": bases[kept].astype(base), f"b_{kind}": powers[kept]}
        nodes.append(helper.make_node("Pow", [f"a_{kind}", f"b_{kind}"], [f"y_{kind}"]))
    lowered_as_onnxruntime(tmp_path / "model.onnx", nodes, inputs, _RELATIVE.get(base, 0.0))


def test_powers_of_whole_numbers_are_exact(tmp_path: Path) -> None:
    """ONNX Runtime computes them in double precision."""
    inputs = {"a": np.array([3, -3, 7, 10, 2], "int64"), "b": np.array([39, 39, 22, 18, 62], "int64")}
    (made,), _ = both(tmp_path / "model.onnx", [helper.make_node("Pow", ["a", "b"], ["y"])], inputs)
    assert made.tolist() == [3**39, -(3**39), 7**22, 10**18, 2**62]


@pytest.mark.parametrize("dtype", _TYPES)
def test_conversions_to_all_types(tmp_path: Path, dtype: str) -> None:
    numbers = np.array([0, 1, 2, 3, 100, 127, 1.75, 2.5]).astype(dtype)
    codes = {kind: helper.np_dtype_to_tensor_dtype(np.dtype(kind)) for kind in _TYPES}
    nodes = [helper.make_node("Cast", ["a"], [f"y_{kind}"], to=code) for kind, code in codes.items()]
    # There and back: through a type that holds less.
    for kind, code in (*codes.items(), ("bfloat16", TensorProto.BFLOAT16)):
        nodes.append(helper.make_node("Cast", ["a"], [f"in_{kind}"], to=code))
        nodes.append(helper.make_node("Cast", [f"in_{kind}"], [f"y_back_{kind}"], to=codes[dtype]))
    lowered_as_onnxruntime(tmp_path / "model.onnx", nodes, {"a": numbers})


@pytest.mark.parametrize("dtype", _FLOATS)
def test_numbers_that_integers_do_not_hold(tmp_path: Path, dtype: str) -> None:
    """ONNX leaves open what becomes of them; the conversions are those of the processor."""
    numbers = np.array([300.7, -300.7, 4e4, -4e4, 1e20, -1e20, np.inf, -np.inf, np.nan, 7.9, -7.9])
    with np.errstate(over="ignore"):
        numbers = numbers.astype(dtype)
    kinds = [kind for kind in _INTEGERS if kind not in ("uint32", "uint64")]
    codes = {kind: helper.np_dtype_to_tensor_dtype(np.dtype(kind)) for kind in kinds}
    nodes = [helper.make_node("Cast", ["a"], [f"y_{kind}"], to=code) for kind, code in codes.items()]
    lowered_as_onnxruntime(tmp_path / "model.onnx", nodes, {"a": numbers})


_OF_HALVES = {
    **{operator: ["h"] for operator in ("Abs", "Neg", "Relu", "ReduceMax")},
    **{operator: ["h", "k"] for operator in ("Max", "Min")},
    "Clip": ["h", "", "k"],
    "Where": ["c", "h", "k"],
}


def test_what_is_chosen_among_halves_is_one(tmp_path: Path) -> None:
    """Without rounding, numbers between two halves would come through; ONNX Runtime lets them."""
    generator = np.random.default_rng(0)
    a, b = generator.normal(size=(2, 3, 7)).astype("float32")
    half = TensorProto.FLOAT16
    nodes = [helper.make_node("Cast", [one], [name], to=half) for one, name in (("a", "h"), ("b", "k"))]
    nodes.append(helper.make_node("ReduceMax", ["k"], ["most"], keepdims=0))
    for operator, given in _OF_HALVES.items():
        given = [*given[:-1], "most"] if operator == "Clip" else given
        nodes.append(helper.make_node(operator, given, [f"h_{operator}"]))
        nodes.append(helper.make_node("Cast", [f"h_{operator}"], [f"y_{operator}"], to=TensorProto.FLOAT))
    inputs = {"a": a, "b": b, "c": a > b}
    made, _ = both(tmp_path / "model.onnx", nodes, inputs)
    for operator, array in zip(_OF_HALVES, made, strict=True):
        np.testing.assert_array_equal(array, array.astype("float16").astype("float32"), operator)
