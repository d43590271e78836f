"""Products of bfloat16 numbers as lowering writes them, and a processor that has them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import te, tirx

from host.build import target_for
from host.build.kernel import compile_function, lower_function
from host.build.linker import link_shared
from host.lowering.expressions.stage import Stage
from host.lowering.graph import Node, Value
from host.lowering.ops import known_operators
from host.model import Task
from targets import Board, MachineDescription, board_for
from tests.unit.schedules import functions as fn

_FEATURES = ("avx2", "fma", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512_bf16")


def board(cores: int = 1, name: str = "AMD EPYC") -> Board:
    """An x86-64 board whose processor has VDPBF16PS."""
    caches = {"L1": 32 << 10, "L2": 1 << 20, "L3": 32 << 20}
    found = board_for(MachineDescription("x86_64", name, cores, _FEATURES, caches, 3.7e9, 8 << 30))
    assert found is not None and found.hardware.bfloat16 is not None
    return found


def target() -> tvm.target.Target:
    """What programs for the board are compiled for."""
    return target_for(board())


def runs_here() -> bool:
    """Whether this machine has the instruction."""
    path = Path("/proc/cpuinfo")
    return path.exists() and " avx512_bf16" in path.read_text(encoding="utf-8")


def assembly(function: tirx.PrimFunc) -> str:
    """What the compiler makes of a program."""
    module = tvm.get_global_func("target.build.llvm")(lower_function(function, "kernel", target()), target())
    text = str(module.inspect_source("s"))
    return text[text.index("kernel:") :]


def run(
    function: tirx.PrimFunc, arguments: list[np.ndarray], shape: tuple[int, ...], dtype: str = "float32"
) -> np.ndarray:
    """The output of a compiled function; the test is skipped where the processor lacks the instructions."""
    output = tvm.runtime.tensor(np.full(shape, 77, np.dtype(dtype)))
    callable_here(function)(*[tvm.runtime.tensor(one) for one in arguments], output)
    return output.numpy()


def callable_here(function: tirx.PrimFunc) -> Any:
    """A compiled function to call; the test is skipped where the processor lacks the instructions."""
    if not runs_here():
        assert compile_function(function, "kernel", target())
        pytest.skip("this processor has no AVX-512 BF16: the program is compiled and not run")
    with tempfile.TemporaryDirectory() as folder:
        object_file, library = Path(folder) / "kernel.o", Path(folder) / "kernel.so"
        object_file.write_bytes(compile_function(function, "kernel", target()))
        link_shared([object_file], library, "x86_64")
        return tvm.runtime.load_module(str(library))["kernel"]


def dense_task(rows: int, columns: int, depth: int, lanes: int = 16, stored: bool = True) -> Task:
    """Activations [rows, depth] by packed weights, then a shift by column, as bfloat16.

    Args:
        rows, columns, depth: of the product.
        lanes: that weights are packed by.
        stored: whether activations lie in memory as bfloat16; otherwise they are rounded first.
    """
    weight = (-(-columns // lanes), depth // 2, lanes, 2)
    return _task("dot_dense", (rows, depth), weight, (rows, columns), stored, {})


def convolution_task(size: int, channels: int, out: int, lanes: int = 16, stride: int = 1) -> Task:
    """A padded 3x3 convolution, then the same."""
    attrs = {"strides": (stride,) * 2, "padding": (1,) * 4, "dilation": (1, 1), "groups": 1, "fill": 0.0}
    weight = (out // lanes, 3, 3, channels // 2, lanes, 2)
    made = -(-size // stride)
    return _task("dot_conv", (1, size, size, channels), weight, (1, made, made, out), True, attrs)


def _task(
    op: str,
    data: tuple[int, ...],
    weight: tuple[int, ...],
    made: tuple[int, ...],
    stored: bool,
    attrs: dict[str, object],
) -> Task:
    x = Value(data, "float32", name="x")
    w = Value(weight, "bfloat16", np.zeros(weight, ml_dtypes.bfloat16))
    shift = Value((made[-1],), "float32", np.zeros(made[-1], "float32"))
    product = Node(known_operators()[op], (x, w), attrs)
    product.outputs = (Value(made, "float32", producer=product),)
    total = Node(known_operators()["add"], (product.output, shift), {})
    total.outputs = (Value(made, "float32", producer=total),)
    stage = Stage({x: "bfloat16"} if stored else {})
    for node in (product, total):
        assert node.spec.write is not None
        node.spec.write(stage, node)
    result = stage.compute(made, lambda i: stage.element(total.output, i).astype("bfloat16"), "epilogue")
    return fn.task(te.create_prim_func([*stage.arguments.values(), result]), op)


def arguments(task: Task, seed: int = 0) -> list[np.ndarray]:
    """Seeded values for the parameters without the result."""
    draw = np.random.default_rng(seed)
    found = []
    for parameter in task.function.params[:-1]:
        values = draw.normal(size=tuple(int(extent) for extent in parameter.shape))
        found.append(values.astype(np.dtype(str(parameter.dtype))))
    return found


def expected(given: list[np.ndarray], columns: int, stride: int = 1) -> np.ndarray:
    """The result in double precision, of operands that are rounded to bfloat16."""
    x, w, shift = given
    x = x.astype(ml_dtypes.bfloat16).astype(np.float64)
    blocks, *kernel, depth, lanes, group = w.shape
    matrix = np.moveaxis(w.astype(np.float64), -1, -2).reshape(blocks, *kernel, depth * group, lanes)
    matrix = np.moveaxis(matrix, 0, -2).reshape(*kernel, depth * group, blocks * lanes)[..., :columns]
    if x.ndim == 2:
        return np.asarray(x @ matrix + shift)
    window = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    height = -(-x.shape[1] // stride)
    total = np.zeros((1, height, height, columns))
    for down, across in np.ndindex(3, 3):
        part = window[:, down : down + x.shape[1] : stride, across : across + x.shape[2] : stride]
        total += part @ matrix[down, across]
    return np.asarray(total + shift)
