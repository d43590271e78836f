"""The model of a seed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper, shape_inference

from tests.fuzz.random_models.arithmetic import ARITHMETIC
from tests.fuzz.random_models.draw import FLOATS, SIZES, Draw, Operator, UnsuitableError, Value
from tests.fuzz.random_models.exact import EXACT
from tests.fuzz.random_models.layers import LAYERS
from tests.fuzz.random_models.movement import MOVES
from tests.fuzz.random_models.quantised import QUANTISED, WIDE_OPSET

OPSET = 20
_LARGEST = 30_000
# What leaves exact values exact: it moves them, or there is one right answer.
_KEEPS = frozenset((*MOVES, *EXACT))
_TYPES = (*["float32"] * 12, "int32", "int64", "float64", "bool", "uint8")


def random_model(seed: int) -> onnx.ModelProto:
    """The model of a seed: up to eight operators on one or two inputs."""
    draw = Draw(seed, "numbers", OPSET)
    for _ in range(draw.pick(1, 1, 2)):
        _input(draw)
    _grown(draw, (MOVES, EXACT, ARITHMETIC, LAYERS, LAYERS), 8)
    return _model(draw, _ends(draw))


def random_quantised_model(seed: int) -> onnx.ModelProto:
    """The quantised model of a seed: up to five layers, most of bytes, on one or two inputs."""
    draw = Draw(seed, "quantised", WIDE_OPSET if seed // 6 % 3 == 0 else OPSET)
    for _ in range(draw.pick(1, 1, 2)):
        _input(draw, ["float32"] * 8 + ["uint8", "uint8" if draw.opset == WIDE_OPSET else "int8"])
    _grown(draw, (*[QUANTISED] * 8, MOVES, LAYERS), 5)
    return _model(draw, _ends(draw))


def _grown(d: Draw, kinds: Sequence[Sequence[Operator]], most: int) -> None:
    for _ in range(d.rng.randint(1, most)):
        for _ in range(40):
            if _grow(d, kinds):
                break


def _input(d: Draw, types: Sequence[str] = _TYPES) -> None:
    rank = d.pick(1, 2, 3, 3, 4, 4, 4, 4, 5)
    shape = [d.pick(*SIZES) for _ in range(rank)]
    while math.prod(shape) > _LARGEST // 4:
        shape[d.rng.randrange(rank)] = d.pick(1, 2, 3)
    if rank > 2 and d.rng.random() < 0.6:
        shape[0] = 1
    d.input(shape, d.pick(*types))


def _grow(d: Draw, kinds: Sequence[Sequence[Operator]]) -> bool:
    """One operator more; nothing has changed where that is refused."""
    x = d.rng.choice(d.values[-3:])
    operator = d.rng.choice(d.pick(*kinds))
    nodes, weights = len(d.nodes), len(d.weights)
    try:
        operator(d, x)
        made = _inferred(d, nodes)
    except (UnsuitableError, shape_inference.InferenceError):
        made = []
    if not made or not all(0 < math.prod(shape) <= _LARGEST and len(shape) <= 6 for _, shape, _ in made):
        del d.nodes[nodes:], d.weights[weights:]
        return False
    read = {name for node in d.nodes[nodes:] for name in node.input}
    exact = operator in _KEEPS and all(one.exact for one in d.values if one.name in read)
    d.values += [Value(name, shape, dtype, exact or dtype not in FLOATS) for name, shape, dtype in made]
    return True


def _inferred(d: Draw, first: int) -> list[tuple[str, tuple[int, ...], str]]:
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


def _ends(d: Draw) -> list[str]:
    """The outputs: what nothing reads, and one value on the way."""
    read = {name for node in d.nodes for name in node.input}
    made = [value.name for value in d.values[len(d.inputs) :]]
    ends = [name for name in made if name not in read]
    return ends + [name for name in made[:1] if name not in ends]


def _model(d: Draw, outputs: Sequence[str]) -> onnx.ModelProto:
    known = {value.name: (value.shape, value.dtype) for value in d.values} | d.declared
    types = {name: (_type(dtype), shape) for name, (shape, dtype) in known.items()}
    declared = [
        helper.make_tensor_value_info(name, *types[name])
        if name in types
        else onnx.ValueInfoProto(name=name, type=onnx.TypeProto(tensor_type=onnx.TypeProto.Tensor()))
        for name in outputs
    ]
    inputs = [helper.make_tensor_value_info(one.name, _type(one.dtype), one.shape) for one in d.inputs]
    made = {name for node in d.nodes for name in node.output}.difference(outputs)
    inner = [helper.make_tensor_value_info(name, *types[name]) for name in d.declared if name in made]
    graph = helper.make_graph(d.nodes, "random", inputs, declared, d.weights, value_info=inner)
    domains = sorted({node.domain for node in d.nodes}.difference([""]))
    opsets = [helper.make_opsetid("", d.opset), *(helper.make_opsetid(one, 1) for one in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _type(dtype: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
