"""Products of bytes as lowering writes them, for processors with dot products."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import tvm

from host.build import target_for
from host.lowering.expressions.stage import Stage
from host.lowering.graph import Node, Value, constant
from host.lowering.ops import known_operators
from host.lowering.types import numeric_type
from host.model import Task
from targets import Board, MachineDescription, board_for, declared
from tests.unit.schedules import functions as fn


def vnni_board(cores: int = 1, restrict: str = "") -> Board:
    """An x86-64 board whose processor has VPDPBUSD, in vectors of 512 or of 256 bits."""
    features = ("avx2", "fma", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
    caches = {"L1": 32 << 10, "L2": 1 << 20, "L3": 32 << 20}
    more = ("avx512_vnni", "avx_vnni")
    described = MachineDescription("x86_64", "test", cores, (*features, *more), caches, 3.7e9, 8 << 30)
    found = board_for(described, restrict)
    assert found is not None
    return found


def pairs_board(cores: int = 1) -> Board:
    """An x86-64 board whose processor has AVX2 and no dot products of bytes."""
    return fn.board(restrict="avx2", cores=cores)


def arm_board(name: str = "raspberry_pi_5") -> Board:
    """A board with SDOT, or without."""
    found = board_for(declared()[name])
    assert found is not None
    return found


def runs_here(board: Board) -> bool:
    """Whether programs with the board's dot product run on this machine."""
    needed = {"u8s8": " avx512_vnni", "s16s16": " avx2"}[board.hardware.dot_product]
    if "+avxvnni" in board.tvm_target.get("mattr", []):
        # Vectors of 256 bits without AVX-512 have an encoding of their own, which Zen 4 does not know.
        needed = " avx_vnni"
    path = Path("/proc/cpuinfo")
    return path.exists() and needed in path.read_text(encoding="utf-8")


def executable_here(board: Board) -> Board:
    """The board compiled for any x86-64 machine where this one lacks its instructions."""
    if runs_here(board):
        return board
    return replace(board, tvm_target={**board.tvm_target, "mcpu": "x86-64-v2", "mattr": []})


def dense_task(rows: int, columns: int, depth: int, lanes: int, dtype: str = "uint8", group: int = 0) -> Task:
    """Activations [rows, depth] by packed weights, then a shift by column, a scale and quantisation.

    Weights that one lane takes, or `group`, lie side by side.
    """
    group = group or 4 // numeric_type(dtype).bytes
    weight = (-(-columns // lanes), depth // group, lanes, group)
    return _task("dot_dense", (rows, depth), weight, (rows, columns), dtype, {})


def convolution_task(
    size: int, channels: int, out: int, lanes: int, dtype: str = "uint8", group: int = 0
) -> Task:
    """A padded 3x3 convolution, then the same."""
    group = group or 4 // numeric_type(dtype).bytes
    attrs = {"strides": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1, "fill": 7}
    weight = (out // lanes, 3, 3, channels // group, lanes, group)
    return _task("dot_conv", (1, size, size, channels), weight, (1, size, size, out), dtype, attrs)


def groups_task(
    size: int, groups: int, depth: int, out: int, dtype: str, group: int, stride: int = 1
) -> Task:
    """A padded 3x3 convolution of `groups`, each `depth` channels to `out`, then the same."""
    strides, lanes, image = (stride, stride), math.gcd(out, 8), -(-size // stride)
    attrs = {"strides": strides, "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": groups, "fill": 7}
    weight = (groups, out // lanes, 3, 3, depth // group, lanes, group)
    made = (1, image, image, groups * out)
    return _task("dot_grouped_conv", (1, size, size, groups * depth), weight, made, dtype, attrs)


def _task(
    op: str,
    data: tuple[int, ...],
    weight: tuple[int, ...],
    made: tuple[int, ...],
    dtype: str,
    attrs: dict[str, object],
) -> Task:
    x = Value(data, dtype, name="x")
    shift = Value((made[-1],), "int32", np.zeros(made[-1], "int32"))
    scale = Value((made[-1],), "float32", np.ones(made[-1], "float32"))
    product = computed(op, (x, Value(weight, "int8", np.zeros(weight, "int8"))), made, "int32", attrs)
    total = computed("add", (product, shift), made, "int32", {})
    real = computed("multiply", (computed("cast", (total,), made, "float32", {}), scale), made, "float32", {})
    one, zero = constant(1.0, "float32"), constant(5, dtype)
    result = computed("quantize", (real, one, zero), made, dtype, {})
    stage = Stage()
    for node in order(result):
        assert node.spec.write is not None
        node.spec.write(stage, node)
    made_tensor = stage.tensor(result, "epilogue")
    function = tvm.te.create_prim_func([*stage.arguments.values(), made_tensor])
    return fn.task(function, op)


def computed(
    op: str, inputs: tuple[Value, ...], shape: tuple[int, ...], dtype: str, attrs: dict[str, object]
) -> Value:
    """The result of an operation."""
    node = Node(known_operators()[op], inputs, attrs)
    node.outputs = (Value(shape, dtype, producer=node),)
    return node.output


def order(value: Value) -> list[Node]:
    """The operations that a value is made by, each behind those that it reads."""
    if value.producer is None:
        return []
    before = [node for part in value.producer.inputs for node in order(part)]
    return [*before, value.producer]


def arguments(task: Task, seed: int = 0) -> list[np.ndarray]:
    """Seeded values for the parameters, the result zeroed."""
    draw, values = np.random.default_rng(seed), []
    for parameter in task.function.params:
        shape, dtype = tuple(int(extent) for extent in parameter.shape), str(parameter.dtype)
        if dtype == "float32":
            values.append((draw.random(shape) * 2e-3).astype(dtype))
        else:
            limits = np.iinfo(dtype) if dtype != "int32" else np.iinfo("int16")
            values.append(draw.integers(limits.min, limits.max + 1, shape).astype(dtype))
    values[-1] = np.zeros_like(values[-1])
    return values


def expected(task: Task, given: list[np.ndarray]) -> np.ndarray:
    """The result in numpy, for every operator."""
    x, w, shift, scale, result = given
    if w.ndim == 7:
        parts = [np.split(one, len(w), axis=-1) for one in (x, shift, scale, result)]
        of_groups = [
            expected(task, [a, b, *rest]) for a, b, *rest in zip(parts[0], w, *parts[1:], strict=True)
        ]
        return np.concatenate(of_groups, axis=-1)
    window = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=7) if x.ndim == 4 else x
    blocks, *kernel, depth, lanes, group = w.shape
    columns = np.moveaxis(w, -1, -2).reshape(blocks, *kernel, depth * group, lanes)
    columns = np.moveaxis(columns, 0, -2).reshape(*kernel, depth * group, blocks * lanes).astype("int64")
    if x.ndim == 2:
        total = x.astype("int64") @ columns
    else:
        total = np.zeros((*x.shape[:-1], columns.shape[-1]), "int64")
        for down, across in np.ndindex(3, 3):
            part = window[:, down : down + x.shape[1], across : across + x.shape[2]].astype("int64")
            total += part @ columns[down, across]
        stride = -(-x.shape[1] // result.shape[1])
        total = total[:, ::stride, ::stride]
    real = (total + shift).astype("float32") * scale
    limits = np.iinfo(result.dtype)
    return np.clip(np.rint(real) + 5, limits.min, limits.max).astype(result.dtype)


def assembly(function: tvm.tirx.PrimFunc, board: Board) -> str:
    """What the compiler makes of a program for a board."""
    named = function.with_attr("global_symbol", "main")
    library = tvm.compile(tvm.IRModule({"main": named}), target=target_for(board))
    return str(library.mod.inspect_source("s"))
