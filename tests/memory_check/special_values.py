"""Operators on numbers that are none, infinite, denormal, or at the end of their type: one table.

Outputs of the models have names that begin with "y". `DIFFERENT` has those that may differ from the peer's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto, helper, numpy_helper

_SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, 0, -0.0, 1e-40, -1e-40, 1, -1, 0.5, -0.5, 2.5, -2.5, 3, -7, 1e-20, 3e38, -3e38],
    np.float32,
)

# Outputs that may differ, by the name of their family and their own, and why.
_PLACE = "ONNX Runtime's result depends on where NaN is among the elements; here NaN leads, as in NumPy"
_LEAST = "of minus infinities ONNX Runtime's is the smallest finite number; here it is -inf, as in PyTorch"
_EXTREMES = ("ReduceMax", "ReduceMin", "Hardmax", "GlobalMaxPool")
_SUM = "the sum of a row of -3e38 overflows; ONNX Runtime adds up in double precision"
_ORDER = "ONNX Runtime does not order NaN; here it is the largest number, as in PyTorch"
DIFFERENT: Mapping[tuple[str, str], str] = {
    (
        "one number",
        "y_clip_low",
    ): "a bound that is left out is none here, and the largest finite number there",
    ("one number", "y_clip_high"): "the same",
    (
        "one number",
        "y_HardSwish",
    ): "x (x + 3) / 6 overflows near the end of the type, in another order it would not",
    (
        "one number",
        "y_gelu_tanh",
    ): "the tanh of a large number is 1 to the last bit but one, which -3e38 enlarges",
    ("two numbers", "y_PRelu"): "zero times a slope that is infinite or NaN; the same for all other slopes",
    **{(family, "y_LayerNormalization"): _SUM for family in ("rows", "rows without NaN")},
    **{("rows", f"y_{name}"): _PLACE for name in _EXTREMES},
    **{("rows", f"y_Arg{name}"): _PLACE for name in ("Max_0", "Max_1", "Min_0", "Min_1")},
    **{("rows", f"y_{name}"): _ORDER for name in ("largest", "of_largest", "smallest", "of_smallest")},
    ("rows", "y_MaxPool"): "maxima over windows are as fast as can be; which NaN is lost differs there too",
    **{("rows without NaN", f"y_{name}"): _LEAST for name in ("MaxPool", "GlobalMaxPool")},
}


@dataclass(frozen=True)
class Family:
    """A model of many operators on the same inputs.

    Attributes:
        name: of the family.
        inputs: by name.
        nodes: of the model.
        opset: version of the standard operators.
    """

    name: str
    inputs: Mapping[str, np.ndarray]
    nodes: tuple[NodeProto, ...]
    opset: int = 20

    @property
    def outputs(self) -> list[str]:
        """Names of what the model gives back."""
        return [name for node in self.nodes for name in node.output if name.startswith("y")]


def _node(operator: str, inputs: str, outputs: str = "", **attributes: object) -> NodeProto:
    made = outputs.split() or [f"y_{operator}"]
    return helper.make_node(operator, [name.strip("_") for name in inputs.split()], made, **attributes)


def _constant(name: str, value: object, dtype: str = "float32") -> NodeProto:
    array = numpy_helper.from_array(np.array(value, dtype))
    return helper.make_node("Constant", [], [name], value=array)


_OF_ONE = (
    "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor IsNaN IsInf Log Neg Reciprocal Round "
    "Sigmoid Sign Sin Sinh Sqrt Tan Tanh Relu Elu LeakyRelu Selu Softplus Softsign HardSigmoid HardSwish "
    "ThresholdedRelu Celu Mish Gelu Identity"
)
_COMPARISONS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")


def _of_one() -> Iterator[NodeProto]:
    for operator in _OF_ONE.split():
        yield _node(operator, "x")
    for name, value in (("low", -1.0), ("high", 6.0), ("zero", 0.0), ("one", 1.0)):
        yield _constant(name, value)
    yield _constant("false", False, "bool")
    yield _node("Shrink", "x", lambd=0.6, bias=0.1)
    yield _node("Sigmoid", "x", "gate")
    yield _node("Mul", "x gate", "y_silu")
    yield _node("Gelu", "x", "y_gelu_tanh", approximate="tanh")
    yield _node("Clip", "x low high")
    yield _node("Clip", "x low", "y_clip_low")
    yield _node("Clip", "x _ high", "y_clip_high")
    for operator in ("Max", "Min", "Add", "Mul", "Pow", "Div"):
        yield _node(operator, "x one", f"y_{operator}_one")
        yield _node(operator, "x zero", f"y_{operator}_zero")
    yield _node("Mul", "x x", "y_square")
    for operator in ("Sub", "Div", *_COMPARISONS):
        yield _node(operator, "x x", f"y_{operator}_itself")
    yield _node("Not", "y_Equal_itself", "y_is_nan")
    yield _node("Equal", "y_Equal_itself false", "y_is_false")
    # ONNX leaves open what becomes of numbers that an integer type does not hold.
    integers = (("int8", 3), ("uint8", 2), ("int16", 5), ("uint16", 4), ("int32", 6), ("int64", 7))
    for name, code in (("bool", 9), ("half", 10), ("double", 11), *integers):
        yield _node("Cast", "x", f"y_{name}", to=code)
    yield _node("Cast", "y_bool", "y_number", to=1)
    yield _node("Where", "y_bool x one", "y_where")


def _of_two() -> Iterator[NodeProto]:
    for operator in ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "PRelu", "Sum", "Mean"):
        yield _node(operator, "a b")
    yield _node("Mod", "a b", fmod=1)
    for operator in _COMPARISONS:
        yield _node(operator, "a b")
        yield _node("Not", f"y_{operator}", f"y_not_{operator}")
        yield _node("Where", f"y_{operator} a b", f"y_where_{operator}")
    for operator in ("And", "Or", "Xor"):
        yield _node(operator, "y_Less y_GreaterOrEqual")
    yield _node("Or", "y_Less y_Greater", "y_apart")
    yield _node("Or", "y_Less y_Equal", "y_or_equal")
    for name, value in (("one", 1.0), ("two", 2.0), ("three", 3.0)):
        yield _constant(name, value)
    yield _node("Where", "y_GreaterOrEqual two three", "otherwise")
    yield _node("Where", "y_Less one otherwise", "y_chain")


_REDUCTIONS = (
    "ReduceMax ReduceMin ReduceSum ReduceMean ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp "
    "ReduceSumSquare"
)


def _of_rows() -> Iterator[NodeProto]:
    yield _constant("axes", [1], "int64")
    yield _constant("axis", 1, "int64")
    yield _constant("count", [4], "int64")
    yield _constant("ones", np.ones(9))
    for operator in _REDUCTIONS.split():
        yield _node(operator, "x axes")
    for operator in ("ArgMax", "ArgMin"):
        for last in (0, 1):
            yield _node(operator, "x", f"y_{operator}_{last}", axis=1, select_last_index=last)
    for operator in ("Softmax", "LogSoftmax", "Hardmax"):
        yield _node(operator, "x", axis=1)
    for power in (1, 2):
        yield _node("LpNormalization", "x", f"y_lp_{power}", axis=1, p=power)
    yield _node("TopK", "x count", "y_largest y_of_largest", axis=1)
    yield _node("TopK", "x count", "y_smallest y_of_smallest", axis=1, largest=0)
    yield _node("CumSum", "x axis")
    yield _node("LayerNormalization", "x ones", axis=-1)
    yield _node("Unsqueeze", "x axes", "image")
    yield _node("MaxPool", "image", kernel_shape=[3])
    yield _node("AveragePool", "image", kernel_shape=[3])
    yield _node("GlobalMaxPool", "image")
    yield _node("GlobalAveragePool", "image")


def _rows() -> np.ndarray:
    """Rows of nine numbers with special ones among them."""
    rows = np.random.default_rng(0).normal(size=(14, 9)).astype(np.float32)
    for row, (place, value) in enumerate(((0, np.nan), (4, np.nan), (8, np.nan), (0, np.inf), (4, -np.inf))):
        rows[row, place] = value
    rows[5:9] = np.array([[np.nan], [-np.inf], [np.inf], [-3e38]], np.float32)
    rows[9, [2, 5]] = np.inf, -np.inf
    rows[10] = [0, 0, 0, -0.0, 0, 0, 0, 0, 0]
    rows[11] = 1e-40
    rows[12, [1, 3]] = np.nan, np.inf
    return rows


def _of_long_rows() -> Iterator[NodeProto]:
    for operator in ("ArgMax", "ArgMin"):
        for axis in (0, 1):
            yield _node(operator, "x", f"y_{operator}_{axis}", axis=axis)
        # ONNX Runtime's result depends on where NaN is; where it is first, it leads there too.
        yield _node(operator, "first", f"y_{operator}_first", axis=1)
    yield _constant("axes", [1], "int64")
    for operator in ("ReduceMax", "ReduceMin"):
        yield _node(operator, "x axes")


def _long_rows() -> np.ndarray:
    """Rows and columns that are no whole number of vectors, of which some hold one number alone."""
    rows = np.random.default_rng(1).normal(size=(61, 37)).astype(np.float32)
    rows[3], rows[4] = -np.inf, np.inf
    rows[:, 5], rows[:, 6] = np.inf, -np.inf
    rows[7:9], rows[9, [2, 30, 36]], rows[10, [11, 33]] = 0.0, 5.0, -5.0
    rows[12, [0, 36]] = np.inf, -np.inf
    return rows


def _nan_first(rows: np.ndarray) -> np.ndarray:
    rows[::4, 0] = np.nan
    return rows


def _without_nan(rows: np.ndarray) -> np.ndarray:
    return rows[~np.isnan(rows).any(axis=1)]


def _bytes() -> Iterator[NodeProto]:
    for operator in ("ArgMax", "ArgMin"):
        for last in (0, 1):
            yield _node(operator, "x", f"y_{operator}_{last}", axis=1, select_last_index=last)


def _integers(dtype: str) -> Family:
    """Pairs of whole numbers; none by zero, which ONNX Runtime refuses."""
    ends = np.iinfo(dtype)
    numbers = np.array(
        [ends.min, ends.min + 1, 1, 2, 3, 5, 7, 100, ends.max, *_NEGATIVE[: 4 * (ends.min < 0)]]
    )
    left, right = (
        side.reshape(-1).astype(dtype) for side in np.meshgrid(numbers, numbers[1:], indexing="ij")
    )
    kept = (right != 0) & ~((left == ends.min) & (right.astype("int64") == -1))
    nodes = [_node(operator, "a b") for operator in ("Add", "Sub", "Mul", "Div", "Mod", "Max", *_COMPARISONS)]
    nodes += [_node("Not", "y_Less", "y_not")]
    nodes += [_node("Cast", "a", f"y_cast_{code}", to=code) for code in (1, 3, 7, 9)]
    if ends.min < 0:
        nodes += [_node(operator, "a") for operator in ("Abs", "Neg", "Sign")]
    return Family(dtype, {"a": left[kept], "b": right[kept]}, tuple(nodes))


_NEGATIVE = (-1, -2, -7, -5)


def _shifts(dtype: str) -> Family:
    numbers, counts = np.meshgrid([1, 2, 128, 255, 77], [0, 1, 7, 8, 9, 31, 32, 63, 64, 200], indexing="ij")
    nodes = [_node("BitShift", "a b", f"y_{side}", direction=side) for side in ("LEFT", "RIGHT")]
    inputs = {"a": numbers.reshape(-1).astype(dtype), "b": counts.reshape(-1).astype(dtype)}
    return Family(f"shifts of {dtype}", inputs, tuple(nodes))


def _pairs() -> dict[str, np.ndarray]:
    sides = np.meshgrid(_SPECIAL, _SPECIAL, indexing="ij")
    return {name: side.reshape(-1) for name, side in zip("ab", sides, strict=True)}


_LINE = np.concatenate([_SPECIAL, np.linspace(-5, 5, 46, dtype=np.float32)])
FAMILIES = (
    Family("one number", {"x": _LINE}, tuple(_of_one())),
    Family("two numbers", _pairs(), tuple(_of_two())),
    Family("rows", {"x": _rows()}, tuple(_of_rows()), opset=18),
    Family("rows without NaN", {"x": _without_nan(_rows())}, tuple(_of_rows()), opset=18),
    Family(
        "long rows",
        {"x": _long_rows(), "first": _nan_first(_long_rows())},
        tuple(_of_long_rows()),
        opset=18,
    ),
    Family(
        "rows of bytes", {"x": np.array([[0] * 5, [255] * 5, [0, 3, 3, 0, 1]], np.uint8)}, tuple(_bytes())
    ),
    *map(_integers, ("int8", "uint8", "int32", "int64")),
    *map(_shifts, ("uint8", "uint32", "uint64")),
)
