"""Attention of quantised files: bytes come in and go out, and its weights are rounded, in one function."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import tvm

from host.lowering import lower
from host.model import ImportedModel, LoweredModel, Task
from host.schedules import scheduled_function, space_for
from tests.scheduling.repetitions import in_turn
from tests.unit.lowering.harness import board, functions, run_lowered_cases
from tests.unit.lowering.numeric_types.quantized_models import Arrays, activations, model, node, pair
from tests.unit.schedules import functions as fn

HEADS, DEPTH = 3, 16
# Numbers of rows and columns that tiles and vectors divide, and that they do not.
LENGTHS = (64, 70, 197)


def _attention(folder: Path, length: int, dtype: str = "uint8", masked: bool = False) -> ImportedModel:
    """QDQ around each step of an attention of a tensor with itself, transposes around it."""
    lowest = np.iinfo(dtype).min
    constants: Arrays = {
        **activations(dtype),
        "root": np.float32(0.25),
        "rz": np.array(lowest, dtype),
        "rs": np.float32(0.001),
        "ss": np.float32(0.15),
        "sz": np.array(lowest + 100, dtype),
        "ws": np.float32(1 / 256),
        "wz": np.array(lowest, dtype),
        "os": np.float32(0.02),
        "oz": np.array(lowest + 120, dtype),
        "whole": np.array([1, length, HEADS * DEPTH], "int64"),
    }
    scaled = "scaled"
    if masked:
        hidden = np.where(np.arange(length) < length - 9, 0.0, -15.0).astype("float32")
        constants |= {"mask": hidden.reshape(1, 1, 1, length), "ms": np.float32(0.06)}
        constants["mz"] = np.array(lowest + 250, dtype)
    nodes = [
        *pair("x", "xd", "xs", "xz"),
        node("Transpose", ["xd"], ["q0"], perm=[0, 2, 1, 3]),
        *pair("q0", "q", "xs", "xz"),
        node("Transpose", ["xd"], ["k0"], perm=[0, 2, 3, 1]),
        *pair("k0", "k", "xs", "xz"),
        node("MatMul", ["q", "k"], ["p0"]),
        *pair("p0", "p", "ss", "sz"),
        *pair("root", "r", "rs", "rz"),
        node("Mul", ["p", "r"], ["scaled0"]),
        *pair("scaled0", "scaled", "ss", "sz"),
    ]
    if masked:
        nodes += [
            *pair("mask", "m", "ms", "mz"),
            node("Add", ["scaled", "m"], ["a0"]),
            *pair("a0", "a", "ss", "sz"),
        ]
        scaled = "a"
    nodes += [
        node("Softmax", [scaled], ["w0"], axis=-1),
        *pair("w0", "w", "ws", "wz"),
        node("MatMul", ["w", "q"], ["o0"]),
        *pair("o0", "o", "os", "oz"),
        node("Transpose", ["o"], ["t"], perm=[0, 2, 1, 3]),
        *pair("t", "td", "os", "oz"),
        node("Reshape", ["td", "whole"], ["y"]),
    ]
    return model(folder, nodes, (1, length, HEADS, DEPTH), (1, length, HEADS * DEPTH), constants)


def _check(imported: ImportedModel) -> LoweredModel:
    """Lower and run; a sum's last bit may move what is rounded by one step, at few places."""
    assert imported.module is not None, imported.reason
    lowered = lower(imported, board())
    made = run_lowered_cases(lowered, [case.inputs for case in imported.golden])
    for case, (found,) in zip(imported.golden, made, strict=True):
        differences = np.abs(found - case.outputs[0])
        assert differences.max() <= 0.02 * 1.001
        assert (differences > 0.01).mean() <= 0.01
        assert np.ptp(case.outputs[0]) > 0.2
    return lowered


def _task(lowered: LoweredModel) -> Task:
    [found] = [task for task in lowered.tasks if "attention" in task.name]
    return found


@in_turn("length, dtype, masked", LENGTHS, ["uint8", "int8"], [False, True])
def test_it_is_one_function_of_bytes(tmp_path: Path, length: int, dtype: str, masked: bool) -> None:
    lowered = _check(_attention(tmp_path, length, dtype, masked))
    assert not [name for name in functions(lowered) if "softmax" in name or "matmul" in name]
    parameters = _task(lowered).function.params
    assert {str(parameter.dtype) for parameter in parameters} == {dtype}


def test_files_of_other_types_are_not_opened_twice(tmp_path: Path) -> None:
    """A product whose weights are not rounded keeps its function of single precision."""
    length = 70
    constants: Arrays = {**activations("uint8"), "whole": np.array([1, length, HEADS * DEPTH], "int64")}
    nodes = [
        node("Transpose", ["x"], ["q"], perm=[0, 2, 1, 3]),
        node("Transpose", ["x"], ["k"], perm=[0, 2, 3, 1]),
        node("MatMul", ["q", "k"], ["p"]),
        node("Softmax", ["p"], ["w"], axis=-1),
        node("MatMul", ["w", "q"], ["o"]),
        node("Transpose", ["o"], ["t"], perm=[0, 2, 1, 3]),
        node("Reshape", ["t", "whole"], ["y"]),
    ]
    shapes = (1, length, HEADS, DEPTH), (1, length, HEADS * DEPTH)
    lowered = lower(model(tmp_path, nodes, *shapes, constants), board())
    assert {str(parameter.dtype) for parameter in _task(lowered).function.params} == {"float32"}


def _run(function: tvm.tirx.PrimFunc, target: dict[str, object]) -> np.ndarray:
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    compiled = tvm.compile(module, target=tvm.target.Target({**target, "opt-level": 0})).jit()
    generator = np.random.default_rng(0)
    *given, made = [(tuple(int(n) for n in one.shape), str(one.dtype)) for one in function.params]
    arrays = [generator.integers(0, 256, shape).astype(dtype) for shape, dtype in given]
    result = tvm.runtime.tensor(np.zeros(*made))
    compiled["main"](*(tvm.runtime.tensor(array) for array in arrays), result)
    return result.numpy().astype("int32")


@pytest.mark.parametrize("threads", [1, 2])
def test_random_programs_compute_the_task(tmp_path: Path, threads: int) -> None:
    described = fn.board("avx2", threads)
    imported = _attention(tmp_path, 70, masked=True)
    task = _task(lower(imported, described))
    space = space_for(task, described.hardware, threads)
    assert space.rule.name == "attention"
    wanted = _run(task.function, described.tvm_target)
    assert np.ptp(wanted) > 20
    generator = random.Random(threads)
    for _ in range(4):
        candidate = space.candidate(space.sample(generator), "random")
        found = _run(scheduled_function(space.apply(candidate)), described.tvm_target)
        differences = np.abs(found - wanted)
        assert differences.max() <= 1, candidate.decisions
        assert (differences > 0).mean() <= 0.01, candidate.decisions
