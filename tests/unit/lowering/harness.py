"""Lowered models beside the same relax module compiled as it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from host.lowering import lower
from host.model import ImportedModel, LoweredModel, Signature
from targets import Board, MachineDescription, board_for

Build = Callable[..., Any]
LANES = 16


def board(lanes: int = LANES) -> Board:
    """An x86-64 board whose packing is by `lanes`, compiled for any x86-64 machine."""
    found = board_for(MachineDescription("x86_64", "test", 1, ("avx2", "fma"), {}, 3e9, 1 << 30))
    assert found is not None
    hardware = dataclasses.replace(found.hardware, vector_bits=32 * lanes)
    target = {**found.tvm_target, "mcpu": "x86-64-v2"}
    return dataclasses.replace(found, hardware=hardware, tvm_target=target)


def relax_module(build: Build, inputs: Sequence[np.ndarray]) -> tvm.IRModule:
    """`build(builder, *variables)` as the `main` of a module; it returns the result."""
    builder = relax.BlockBuilder()
    variables = [
        relax.Var(f"input{i}", relax.TensorType(array.shape, array.dtype.name))
        for i, array in enumerate(inputs)
    ]
    with builder.function("main", variables):
        with builder.dataflow():
            result = builder.emit_output(build(builder, *variables))
        builder.emit_func_output(result)
    return builder.get()


def imported(module: tvm.IRModule, name: str = "model") -> ImportedModel:
    """A module as an importer would hand it over."""
    return ImportedModel(name, "onnx", Path("model.onnx"), Signature((), ()), module, (), "")


def lowered(
    build: Build, inputs: Sequence[np.ndarray], lanes: int = LANES, any_length: bool = False
) -> LoweredModel:
    """The lowered form of what `build` writes."""
    return lower(imported(relax_module(build, inputs)), board(lanes), any_length=any_length)


def flat(result: Any) -> list[np.ndarray]:
    """All arrays of nested results."""
    if hasattr(result, "numpy"):
        return [result.numpy()]
    return [array for part in result for array in flat(part)]


def hardly_optimised(target: tvm.target.Target) -> tvm.target.Target:
    """The target, for which LLVM does little: with all it can, compiling takes longer than the few runs.

    What LLVM makes of an operation is in question where bits are compared, and there alone.
    """
    return tvm.target.Target({**target.export(), "opt-level": 0})


def run(module: tvm.IRModule, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Compile for this machine without any optimisation of ours, and run."""
    return run_cases(module, [arguments])[0]


def run_cases(module: tvm.IRModule, cases: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
    """The same for several sets of arguments, compiled once."""
    executable = tvm.compile(module, target=hardly_optimised(tvm.target.Target({"kind": "llvm"})))
    machine = relax.VirtualMachine(executable, tvm.cpu())
    return [flat(machine["main"](*map(tvm.runtime.tensor, arguments))) for arguments in cases]


def run_lowered(model: LoweredModel, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Run a lowered model on inputs, its parameters behind them."""
    return run_lowered_cases(model, [inputs])[0]


def run_lowered_cases(model: LoweredModel, cases: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
    """The same for several sets of inputs, compiled once."""
    return run_cases(model.module, [[*inputs, *model.parameters] for inputs in cases])


def check(
    build: Build,
    inputs: Sequence[np.ndarray],
    lanes: int = LANES,
    rtol: float = 1e-5,
    atol: float = 1e-5,
    any_length: bool = False,
) -> LoweredModel:
    """Assert that lowering changes no value, and return the lowered model."""
    wanted = run(relax_module(build, inputs), inputs)
    model = lowered(build, inputs, lanes, any_length)
    found = run_lowered(model, inputs)
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)
    return model


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Normally distributed fp32 numbers."""
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype("float32")


def largest_of_windows(images: np.ndarray, kernel: int, step: int, padding: int) -> np.ndarray:
    """Maxima over the windows of images (N, H, W, C), around which nothing counts."""
    sides = [(0, 0), (padding, padding), (padding, padding), (0, 0)]
    whole = np.pad(images, sides, constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(whole, (kernel, kernel), (1, 2))
    return windows[:, ::step, ::step].max(axis=(-2, -1))


def weight(*shape: int, seed: int = 1) -> relax.Expr:
    """A constant of normally distributed numbers, smaller for longer sums."""
    scale = np.sqrt(max(np.prod(shape[1:]), 1))
    return relax.const((normal(*shape, seed=seed) / scale).astype("float32"))


def functions(model: LoweredModel) -> list[str]:
    """Names of the distinct functions without the number that makes them distinct."""
    return [task.name.rstrip("0123456789").rstrip("_") for task in model.tasks]


def calls(model: LoweredModel) -> int:
    """Kernels in one run."""
    return sum(task.weight for task in model.tasks)


def blocks(model: LoweredModel) -> set[str]:
    """Names of the blocks of all functions."""
    found = set()
    for task in model.tasks:
        schedule = tvm.s_tir.Schedule(task.function)
        for block in schedule.get_child_blocks(schedule.get_sblock("root")):
            found.add(schedule.get(block).name_hint)
    return found
