from __future__ import annotations

import platform
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import te

from host.build import KernelCache, build_kernel_library

Run = Callable[..., np.ndarray]


@pytest.fixture
def target() -> tvm.target.Target:
    """This machine at the least that its architecture promises: runs everywhere."""
    triple = f"{platform.machine()}-linux-gnu"
    return tvm.target.Target({"kind": "llvm", "mtriple": triple, "num-cores": 2})


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    return KernelCache(tmp_path / "kernels")


@pytest.fixture
def run(tmp_path: Path, target: tvm.target.Target) -> Run:
    """Compiles a function, calls it with inputs and returns its only output."""

    numbers = count()

    def call(function: tvm.tirx.PrimFunc, *inputs: np.ndarray) -> np.ndarray:
        path = tmp_path / f"kernel{next(numbers)}.so"
        library = build_kernel_library({"kernel": function}, path, target)
        output = function.params[-1]
        shape = [int(extent) for extent in output.shape]
        result = tvm.runtime.tensor(np.zeros(shape, str(output.dtype)))
        tvm.runtime.load_module(str(library))["kernel"](*map(tvm.runtime.tensor, inputs), result)
        return np.asarray(result.numpy())

    return call


@pytest.fixture
def scale() -> Callable[[float], tvm.tirx.PrimFunc]:
    """Functions that multiply 64 numbers by a constant."""

    def make(factor: float) -> tvm.tirx.PrimFunc:
        source = te.placeholder((64,), name="source")
        return te.create_prim_func([source, te.compute((64,), lambda i: source[i] * factor, name="scaled")])

    return make
