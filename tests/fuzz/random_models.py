"""Small valid ONNX models of operators drawn by chance, with sizes that nothing divides.

A seed makes the same model on every machine. Functions with steps (rounding, comparisons, positions of
maxima) are drawn only where their input is exact: the others may be a last digit away from ONNX Runtime's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

OPSET = 20
_LARGEST = 30_000
_SIZES = (1, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 21, 31, 33, 45, 64)
_FLOATS = ("float32", "float64")


@dataclass(frozen=True)
class _Value:
    """A value of the graph.

    Attributes:
        name: in the graph.
        shape: of the tensor.
        dtype: of its elements, NumPy's name.
        exact: whether every right computation gives the same bits.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    exact: bool

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def floating(self) -> bool:
        return self.dtype in _FLOATS


class _Unsuitable(Exception):
    """The operator does not take this value."""


class _Draw:
    """A graph that grows."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(f"numbers/{seed}")
        self.numbers = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: list[_Value] = []
        self.values: list[_Value] = []
        self._names = 0

    def name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def pick(self, *choices: Any) -> Any:
        return self.rng.choice(choices)

    def axis(self, x: _Value) -> int:
        """An axis, now and then counted from the end."""
        self.need(x.rank > 0)
        return self.rng.randrange(-x.rank, x.rank)

    def need(self, condition: bool) -> None:
        if not condition:
            raise _Unsuitable

    def constant(self, array: np.ndarray | Sequence[int]) -> str:
        """A weight of the file; integers without a type are 64 bits wide."""
        held = array if isinstance(array, np.ndarray) else np.array(array, np.int64)
        self.weights.append(numpy_helper.from_array(held, self.name("w")))
        return str(self.weights[-1].name)

    def array(self, shape: Sequence[int], dtype: str) -> np.ndarray:
        """Small numbers."""
        if dtype == "bool":
            return self.numbers.random(tuple(shape)) < 0.5
        if dtype in _FLOATS:
            return self.numbers.uniform(-2, 2, tuple(shape)).astype(dtype)
        return self.numbers.integers(0 if dtype == "uint8" else -9, 10, tuple(shape)).astype(dtype)

    def weight(self, *shape: int, like: _Value) -> str:
        """A constant of a value's type; of fractions, smaller for longer sums."""
        array = self.array(shape, like.dtype)
        if like.floating:
            array = (array / math.sqrt(max(1, math.prod(shape[1:])))).astype(like.dtype)
        return self.constant(array)

    def add(self, op: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> list[str]:
        names = [self.name("v") for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attributes))
        return names

    def other(self, x: _Value) -> str:
        """Something of the same type that broadcasts to a value: a constant or an earlier value."""
        alike = [
            one.name
            for one in self.values
            if one.dtype == x.dtype
            and one.rank <= x.rank
            and all(a in (1, b) for a, b in zip(one.shape[::-1], x.shape[::-1], strict=False))
        ]
        if alike and self.rng.random() < 0.4:
            return str(self.rng.choice(alike))
        kept = self.rng.randrange(x.rank + 1)
        return self.weight(*(self.pick(1, size) for size in x.shape[kept:]), like=x)


Operator = Callable[[_Draw, _Value], None]


def _unary(d: _Draw, x: _Value) -> None:
    d.need(x.floating)
    op = d.pick(
        "Relu",
        "LeakyRelu",
        "Sigmoid",
        "Tanh",
        "Abs",
        "Neg",
        "Softplus",
        "Elu",
        "Selu",
        "Sin",
        "Cos",
        "Erf",
        "HardSwish",
        "HardSigmoid",
        "Gelu",
        "Softsign",
        "Mish",
        "ThresholdedRelu",
        "Celu",
    )
    d.need(x.dtype == "float32" or op in ("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Sin", "Cos"))
    d.need(op != "ThresholdedRelu" or x.exact)
    d.add(op, [x.name])


def _clip(d: _Draw, x: _Value) -> None:
    low, high = (np.array(value, x.dtype) for value in ((-1, 1) if x.floating else (1, 3)))
    d.need(x.dtype != "bool")
    d.add("Clip", [x.name, d.pick("", d.constant(low)), d.constant(high)])


def _binary(d: _Draw, x: _Value) -> None:
    if x.dtype == "bool":
        d.add(d.pick("And", "Or", "Xor"), [x.name, d.other(x)])
        return
    d.need(x.dtype != "uint8")
    op = d.pick("Add", "Sub", "Mul", "Max", "Min")
    d.add(op, d.pick([x.name, d.other(x)], [d.other(x), x.name]))


def _select(d: _Draw, x: _Value) -> None:
    d.need(x.dtype in ("float32", "int32", "int64", "uint8"))
    kept = d.rng.randrange(x.rank + 1)
    condition = d.constant(d.array([d.pick(1, size) for size in x.shape[kept:]], "bool"))
    d.add("Where", [condition, x.name, d.other(x)])


def _compare(d: _Draw, x: _Value) -> None:
    d.need(x.exact and x.dtype in ("float32", "int64", "int32"))
    d.add(d.pick("Greater", "Less", "Equal", "GreaterOrEqual", "LessOrEqual"), [x.name, d.other(x)])


def _cast(d: _Draw, x: _Value) -> None:
    to = d.pick("float32", "int32", "int64", "float64", "bool", "uint8")
    d.need(to != x.dtype and (x.exact or to in _FLOATS))
    # Negative numbers as bytes are left to each engine.
    d.need(to != "uint8" or x.dtype == "bool")
    d.add("Cast", [x.name], to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))


def _reduce(d: _Draw, x: _Value) -> None:
    d.need(x.rank > 0 and x.dtype in ("float32", "int32"))
    op = d.pick(
        "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceL1", "ReduceSumSquare"
    )
    d.need(x.floating or op in ("ReduceSum", "ReduceMax", "ReduceMin"))
    axes = d.rng.sample(range(x.rank), d.rng.randint(1, x.rank))
    axes = [axis - d.pick(0, x.rank) for axis in axes]
    d.add(op, [x.name, d.constant(axes)], keepdims=d.pick(0, 1))


def _position(d: _Draw, x: _Value) -> None:
    d.need(x.exact and x.rank > 0 and x.dtype in ("float32", "int32"))
    d.add(d.pick("ArgMax", "ArgMin"), [x.name], axis=d.axis(x), keepdims=d.pick(0, 1))


def _top(d: _Draw, x: _Value) -> None:
    d.need(x.exact and x.rank > 0 and x.dtype == "float32")
    axis = d.axis(x)
    count = d.rng.randint(1, x.shape[axis])
    d.add("TopK", [x.name, d.constant([count])], 2, axis=axis, largest=d.pick(0, 1))


def _cumulate(d: _Draw, x: _Value) -> None:
    d.need(x.dtype in ("float32", "int32", "int64") and x.rank > 0)
    axis = d.constant(np.array(d.axis(x), np.int64))
    d.add("CumSum", [x.name, axis], exclusive=d.pick(0, 1), reverse=d.pick(0, 1))


def _rows(d: _Draw, x: _Value) -> None:
    d.need(x.dtype == "float32" and x.rank > 0)
    axis = d.axis(x)
    kind = d.pick("Softmax", "LogSoftmax", "LayerNormalization", "LpNormalization")
    if kind == "LayerNormalization":
        shape = x.shape[axis:] if axis < 0 else x.shape[axis - x.rank :]
        d.need(math.prod(shape) > 3)
        scale = d.constant(d.numbers.uniform(0.5, 1.5, shape).astype(x.dtype))
        d.add(kind, d.pick([x.name, scale], [x.name, scale, d.weight(*shape, like=x)]), axis=axis)
    else:
        d.need(kind != "LpNormalization" or x.shape[axis] > 2)
        d.add(kind, [x.name], axis=axis)


def _transpose(d: _Draw, x: _Value) -> None:
    d.need(x.rank > 1)
    d.add("Transpose", [x.name], perm=d.rng.sample(range(x.rank), x.rank))


def _reshape(d: _Draw, x: _Value) -> None:
    factors = [p for size in x.shape for p in _factors(size)]
    if d.rng.random() < 0.3:
        d.rng.shuffle(factors)
    shape = [1] * d.rng.randint(1, 5)
    places = sorted(d.rng.randrange(len(shape)) for _ in factors)
    for place, factor in zip(places, factors, strict=True):
        shape[place] *= factor
    d.add("Reshape", [x.name, d.constant(shape)])


def _factors(number: int) -> list[int]:
    for prime in range(2, number):
        if number % prime == 0:
            return [prime, *_factors(number // prime)]
    return [number] if number > 1 else []


def _ones(d: _Draw, x: _Value) -> None:
    units = [axis for axis, size in enumerate(x.shape) if size == 1]
    if units and d.rng.random() < 0.5:
        d.add("Squeeze", [x.name, d.constant(d.rng.sample(units, d.rng.randint(1, len(units))))])
    else:
        d.need(x.rank < 5)
        d.add("Unsqueeze", [x.name, d.constant([d.rng.randrange(x.rank + 1)])])


def _slice(d: _Draw, x: _Value) -> None:
    d.need(x.rank > 0)
    axes = d.rng.sample(range(x.rank), d.rng.randint(1, x.rank))
    starts, ends, steps = [], [], []
    for axis in axes:
        size, step = x.shape[axis], d.pick(1, 1, 1, 2, 3, -1, -1, -2)
        a, b = sorted(d.rng.sample(range(size + 1), 2))
        if step < 0:
            a, b = b - 1, (a - 1 if a else -size - 1)
        starts.append(a)
        ends.append(b)
        steps.append(step)
    d.add("Slice", [x.name, *map(d.constant, (starts, ends, axes, steps))])


def _pad(d: _Draw, x: _Value) -> None:
    d.need(x.rank > 0 and x.dtype in ("float32", "int32", "int64"))
    mode = d.pick("constant", "constant", "edge", "reflect", "wrap")
    most = [3 if mode in ("constant", "edge") else min(3, size - 1) for size in x.shape]
    pads = [d.pick(0, d.rng.randint(0, bound)) for bound in (*most, *most)]
    values = [d.constant(d.array((), x.dtype))] if mode == "constant" and d.pick(True, False) else []
    d.add("Pad", [x.name, d.constant(pads), *values], mode=mode)


def _concat(d: _Draw, x: _Value) -> None:
    axis = d.axis(x)
    fits = [
        one.name
        for one in d.values
        if one.dtype == x.dtype
        and one.rank == x.rank
        and all(a == b for i, (a, b) in enumerate(zip(one.shape, x.shape, strict=True)) if i != axis % x.rank)
    ]
    parts = [d.rng.choice(fits) for _ in range(d.rng.randint(1, 3))]
    shape = list(x.shape)
    shape[axis] = d.pick(*_SIZES[:8])
    parts.append(d.pick(x.name, d.weight(*shape, like=x)))
    d.rng.shuffle(parts)
    d.add("Concat", parts, axis=axis)


def _split(d: _Draw, x: _Value) -> None:
    axis = d.axis(x)
    d.need(x.shape[axis] > 2)
    cuts = sorted(d.rng.sample(range(1, x.shape[axis]), 2))
    sizes = [cuts[0], cuts[1] - cuts[0], x.shape[axis] - cuts[1]]
    d.add("Split", [x.name, d.constant(sizes)], 3, axis=axis)


def _tile(d: _Draw, x: _Value) -> None:
    d.need(x.rank > 0)
    repeats = [d.pick(1, d.rng.randint(1, 9)) for _ in x.shape]
    d.add("Tile", [x.name, d.constant(repeats)])


def _expand(d: _Draw, x: _Value) -> None:
    wide = [d.pick(*_SIZES) if size == 1 else size for size in x.shape]
    d.add("Expand", [x.name, d.constant([*d.pick([], [2], [3, 1]), *wide])])


def _gather(d: _Draw, x: _Value) -> None:
    axis = d.axis(x)
    size = x.shape[axis]
    if d.rng.random() < 0.6:
        shape = [d.pick(*_SIZES[:12]) for _ in range(d.rng.randrange(3))]
        d.add("Gather", [x.name, d.constant(d.numbers.integers(-size, size, shape))], axis=axis)
        return
    shape = list(x.shape)
    shape[axis] = d.pick(*_SIZES)
    d.add("GatherElements", [x.name, d.constant(d.numbers.integers(-size, size, shape))], axis=axis)


def _gather_points(d: _Draw, x: _Value) -> None:
    d.need(x.rank > 1)
    depth = d.rng.randint(1, x.rank)
    shape = [d.pick(*_SIZES[:12]) for _ in range(d.rng.randint(1, 2))]
    columns = [d.numbers.integers(-size, size, shape) for size in x.shape[:depth]]
    d.add("GatherND", [x.name, d.constant(np.stack(columns, -1))])


def _scatter(d: _Draw, x: _Value) -> None:
    d.need(x.rank > 0 and x.dtype in ("float32", "int32"))
    axis = d.rng.randrange(x.rank)
    shape = [d.rng.randint(1, size) for size in x.shape]
    # No place twice along the axis: which write wins is left to each engine.
    along = d.numbers.permutation(x.shape[axis])[: shape[axis]]
    places = np.broadcast_to(np.expand_dims(along, [i for i in range(x.rank) if i != axis]), shape)
    d.add("ScatterElements", [x.name, d.constant(places.copy()), d.weight(*shape, like=x)], axis=axis)


def _triangle(d: _Draw, x: _Value) -> None:
    d.need(x.rank > 1 and x.dtype in ("float32", "int64"))
    shift = d.constant(np.array(d.rng.randint(-3, 3), np.int64))
    d.add("Trilu", [x.name, shift], upper=d.pick(0, 1))


def _reverse(d: _Draw, x: _Value) -> None:
    d.need(x.rank > 1 and x.dtype in ("float32", "int64"))
    lengths = d.constant(d.numbers.integers(1, x.shape[0] + 1, x.shape[1]))
    d.add("ReverseSequence", [x.name, lengths], time_axis=0, batch_axis=1)


def _matmul(d: _Draw, x: _Value) -> None:
    d.need(x.dtype == "float32" and x.rank > 0)
    columns, depth = d.pick(*_SIZES), x.shape[-1]
    if x.rank == 2 and d.rng.random() < 0.5:
        across, along = d.pick(0, 1), d.pick(0, 1)
        inner, outer = (x.shape[0], x.shape[1]) if across else (x.shape[1], x.shape[0])
        shape = (columns, inner) if along else (inner, columns)
        bias = d.weight(*d.pick((columns,), (1, columns), (outer, 1), (outer, columns)), like=x)
        d.add("Gemm", [x.name, d.weight(*shape, like=x), bias], transA=across, transB=along, alpha=0.5)
        return
    batch = x.shape[:-2] if x.rank > 2 and d.pick(True, False) else ()
    d.add("MatMul", [x.name, d.weight(*batch, depth, columns, like=x)])


def _product(d: _Draw, x: _Value) -> None:
    """Of a value with itself transposed, as in attention."""
    d.need(x.dtype == "float32" and x.rank > 1)
    perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    (turned,) = d.add("Transpose", [x.name], perm=perm)
    scale = d.constant(np.array(1 / math.sqrt(x.shape[-1]), x.dtype))
    (scores,) = d.add("MatMul", [x.name, turned])
    d.add("Mul", [scores, scale])


def _convolution(d: _Draw, x: _Value) -> None:
    d.need(x.dtype == "float32" and x.rank in (3, 4, 5))
    channels, image = x.shape[1], x.shape[2:]
    groups = d.pick(1, 1, channels, *(size for size in (2, 3, 4) if channels % size == 0))
    outputs = groups * d.pick(1, 1, 2, 3, 5, 8)
    kernel = [d.rng.randint(1, min(5, size + 2)) for size in image]
    dilations = [d.pick(1, 1, 1, 2, 3) for _ in image]
    strides = [d.pick(1, 1, 1, 2, 3) for _ in image]
    pads = [d.rng.randint(0, k) for k in (*kernel, *kernel)]
    padded = [size + pads[i] + pads[i + len(image)] for i, size in enumerate(image)]
    d.need(all(p > q * (k - 1) for p, q, k in zip(padded, dilations, kernel, strict=True)))
    weight = d.weight(outputs, channels // groups, *kernel, like=x)
    bias = d.pick([], [d.weight(outputs, like=x)])
    d.add(
        "Conv",
        [x.name, weight, *bias],
        kernel_shape=kernel,
        dilations=dilations,
        strides=strides,
        pads=pads,
        group=groups,
    )


def _transposed(d: _Draw, x: _Value) -> None:
    d.need(x.dtype == "float32" and x.rank in (3, 4))
    channels, image = x.shape[1], x.shape[2:]
    groups = d.pick(1, 1, channels)
    outputs = d.pick(1, 2, 3, 5)
    kernel = [d.rng.randint(1, 4) for _ in image]
    strides = [d.pick(1, 2, 2, 3) for _ in image]
    pads = [d.rng.randint(0, k - 1) for k in kernel] * 2
    more = [d.rng.randrange(s) for s in strides]
    weight = d.weight(channels, outputs, *kernel, like=x)
    bias = d.pick([], [d.weight(outputs * groups, like=x)])
    d.add(
        "ConvTranspose",
        [x.name, weight, *bias],
        kernel_shape=kernel,
        strides=strides,
        pads=pads,
        output_padding=more,
        group=groups,
    )


def _pool(d: _Draw, x: _Value) -> None:
    d.need(x.dtype == "float32" and x.rank in (3, 4, 5))
    op = d.pick("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool")
    if op.startswith("Global"):
        d.add(op, [x.name])
        return
    kernel = [d.rng.randint(1, min(4, size)) for size in x.shape[2:]]
    strides = [d.pick(1, 1, 2, 3) for _ in kernel]
    pads = [d.rng.randint(0, k - 1) for k in (*kernel, *kernel)]
    kinds: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "pads": pads}
    if op != "LpPool":
        kinds["ceil_mode"] = d.pick(0, 0, 1)
    if op == "AveragePool":
        kinds["count_include_pad"] = d.pick(0, 1)
    d.add(op, [x.name], **kinds)


def _channels(d: _Draw, x: _Value) -> None:
    d.need(x.dtype == "float32" and x.rank in (3, 4))
    channels = x.shape[1]
    positive = d.constant(d.numbers.uniform(0.5, 1.5, channels).astype(x.dtype))
    bias = d.weight(channels, like=x)
    op = d.pick("BatchNormalization", "InstanceNormalization", "LRN", "PRelu")
    if op == "BatchNormalization":
        mean = d.weight(channels, like=x)
        d.add(op, [x.name, positive, bias, mean, positive])
    elif op == "InstanceNormalization":
        d.need(math.prod(x.shape[2:]) > 3)
        d.add(op, [x.name, positive, bias])
    elif op == "LRN":
        d.add(op, [x.name], size=d.pick(1, 3, 5))
    else:
        d.add(op, [x.name, d.weight(channels, *[1] * (x.rank - 2), like=x)])


def _image(d: _Draw, x: _Value) -> None:
    d.need(x.dtype == "float32" and x.rank == 4)
    _, channels, height, width = x.shape
    op = d.pick("DepthToSpace", "SpaceToDepth", "Resize", "Resize")
    if op == "DepthToSpace":
        d.need(channels % 4 == 0)
        d.add(op, [x.name], blocksize=2, mode=d.pick("DCR", "CRD"))
    elif op == "SpaceToDepth":
        block = d.pick(2, 3)
        d.need(height % block == width % block == 0)
        d.add(op, [x.name], blocksize=block)
    else:
        sizes = d.constant([*x.shape[:2], *(d.pick(*_SIZES[2:]) for _ in "hw")])
        mode = d.pick("nearest", "linear", "cubic")
        # Where a position lies in the middle between two, its last digit decides.
        where = "asymmetric" if mode == "nearest" else d.pick("half_pixel", "align_corners", "asymmetric")
        d.add(
            "Resize",
            [x.name, "", "", sizes],
            mode=mode,
            coordinate_transformation_mode=where,
            nearest_mode="floor",
        )


def _recurrent(d: _Draw, x: _Value) -> None:
    d.need(x.dtype == "float32" and x.rank == 3)
    op, hidden = d.pick("LSTM", "GRU", "RNN"), d.pick(1, 3, 5, 8, 16, 17)
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    direction = d.pick("forward", "reverse", "bidirectional")
    ways = 2 if direction == "bidirectional" else 1
    weights = [d.weight(ways, gates * hidden, size, like=x) for size in (x.shape[2], hidden)]
    bias = d.pick([], [d.weight(ways, 2 * gates * hidden, like=x)])
    kinds = {"linear_before_reset": d.pick(0, 1)} if op == "GRU" else {}
    d.add(op, [x.name, *weights, *bias], 2, hidden_size=hidden, direction=direction, **kinds)


def _quantise(d: _Draw, x: _Value) -> None:
    d.need(x.dtype == "float32" and x.exact)
    kind = d.pick("uint8", "int8")
    scale, zero = d.constant(np.array(0.03, np.float32)), d.constant(np.array(3, kind))
    (whole,) = d.add("QuantizeLinear", [x.name, scale, zero])
    d.add("DequantizeLinear", [whole, scale, zero])


_MOVES: tuple[Operator, ...] = (
    _transpose,
    _reshape,
    _ones,
    _slice,
    _pad,
    _concat,
    _split,
    _tile,
    _expand,
    _gather,
    _gather_points,
    _scatter,
    _triangle,
    _reverse,
    _select,
)
_EXACT: tuple[Operator, ...] = (_compare, _cast, _position, _top, _quantise)
_ARITHMETIC: tuple[Operator, ...] = (_unary, _binary, _binary, _clip, _reduce, _cumulate, _rows)
_LAYERS: tuple[Operator, ...] = (
    _matmul,
    _matmul,
    _product,
    _convolution,
    _convolution,
    _convolution,
    _transposed,
    _pool,
    _pool,
    _channels,
    _image,
    _image,
    _recurrent,
)
# What leaves exact values exact: it moves them, or there is one right answer.
_KEEPS = frozenset((*_MOVES, *_EXACT))


def random_model(seed: int) -> onnx.ModelProto:
    """The model of a seed: up to eight operators on one or two inputs."""
    draw = _Draw(seed)
    for _ in range(draw.pick(1, 1, 2)):
        _input(draw)
    for _ in range(draw.rng.randint(1, 8)):
        for _ in range(40):
            if _grow(draw):
                break
    return _model(draw, _ends(draw))


def _input(d: _Draw) -> None:
    rank = d.pick(1, 2, 3, 3, 4, 4, 4, 4, 5)
    shape = [d.pick(*_SIZES) for _ in range(rank)]
    while math.prod(shape) > _LARGEST // 4:
        shape[d.rng.randrange(rank)] = d.pick(1, 2, 3)
    if rank > 2 and d.rng.random() < 0.6:
        shape[0] = 1
    dtype = d.pick(*["float32"] * 12, "int32", "int64", "float64", "bool", "uint8")
    value = _Value(d.name("x"), tuple(shape), dtype, True)
    d.inputs.append(value)
    d.values.append(value)


def _grow(d: _Draw) -> bool:
    """One operator more; nothing has changed where that is refused."""
    x = d.rng.choice(d.values[-3:])
    operator = d.rng.choice(d.pick(_MOVES, _EXACT, _ARITHMETIC, _LAYERS, _LAYERS))
    nodes, weights = len(d.nodes), len(d.weights)
    try:
        operator(d, x)
        made = _inferred(d, nodes)
    except (_Unsuitable, shape_inference.InferenceError):
        made = []
    if not made or not all(0 < math.prod(shape) <= _LARGEST and len(shape) <= 6 for _, shape, _ in made):
        del d.nodes[nodes:], d.weights[weights:]
        return False
    read = {name for node in d.nodes[nodes:] for name in node.input}
    exact = operator in _KEEPS and all(one.exact for one in d.values if one.name in read)
    d.values += [_Value(name, shape, dtype, exact or dtype not in _FLOATS) for name, shape, dtype in made]
    return True


def _inferred(d: _Draw, first: int) -> list[tuple[str, tuple[int, ...], str]]:
    """Names, shapes and types of what the nodes from `first` on make; empty where one is not known."""
    names = [name for node in d.nodes[first:] for name in node.output]
    model = _model(d, names)
    known = {
        value.name: value for value in shape_inference.infer_shapes(model, True, True, True).graph.output
    }
    made = []
    for name in names:
        kind = known[name].type.tensor_type
        dims = [dim.dim_value if dim.HasField("dim_value") else 0 for dim in kind.shape.dim]
        if not kind.HasField("shape") or not kind.elem_type:
            return []
        made.append((name, tuple(dims), np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type)).name))
    return made


def _ends(d: _Draw) -> list[str]:
    """The outputs: what nothing reads, and one value on the way."""
    read = {name for node in d.nodes for name in node.input}
    made = [value.name for value in d.values[len(d.inputs) :]]
    ends = [name for name in made if name not in read]
    return ends + [name for name in made[:1] if name not in ends]


def _model(d: _Draw, outputs: Sequence[str]) -> onnx.ModelProto:
    known = {value.name: value for value in d.values}
    declared = [
        helper.make_tensor_value_info(name, _type(known[name].dtype), known[name].shape)
        if name in known
        else onnx.ValueInfoProto(name=name, type=onnx.TypeProto(tensor_type=onnx.TypeProto.Tensor()))
        for name in outputs
    ]
    inputs = [helper.make_tensor_value_info(one.name, _type(one.dtype), one.shape) for one in d.inputs]
    graph = helper.make_graph(d.nodes, "random", inputs, declared, d.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


def _type(dtype: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
