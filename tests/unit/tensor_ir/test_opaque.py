"""Names within expressions of whole numbers: TVM compiles them, whatever it knows of their bounds."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from host.build import build_kernel_library
from host.lowering.expressions import math

SIZE = 64


def _computed(function: Callable[[Any], Any], values: np.ndarray, folder: Path) -> np.ndarray:
    x = te.placeholder((SIZE,), str(values.dtype), name="x")
    made = te.compute((SIZE,), lambda i: function(x[i]), name="made")
    target = tvm.target.Target({"kind": "llvm", "mtriple": f"{platform.machine()}-linux-gnu", "num-cores": 2})
    library = build_kernel_library({"kernel": te.create_prim_func([x, made])}, folder / "kernel.so", target)
    result = tvm.runtime.tensor(np.zeros(SIZE, np.int64))
    tvm.runtime.load_module(str(library))["kernel"](tvm.runtime.tensor(values), result)
    return np.asarray(result.numpy())


def _bucket(distance: Any, both_directions: bool) -> Any:
    """The bucket of a relative position: 8 for near ones, 8 for a logarithm of far ones."""

    def of(v: Any) -> Any:
        zero, eight = tirx.const(0, "int64"), tirx.const(8, "int64")
        side = tirx.Cast("int64", v > zero) * tirx.const(16, "int64") if both_directions else zero
        size = tirx.Select(v < zero, -v, v) if both_directions else tirx.max(-v, zero)
        return side + math.bind(size, lambda a: tirx.Select(a < eight, a, far(a)))

    def far(a: Any) -> Any:
        logarithm = math.log(tirx.Cast("float32", a) / math.number(8.0))
        scaled = tirx.Cast("int64", logarithm * math.number(8 / np.log(16.0)))
        return tirx.min(scaled + tirx.const(8, "int64"), tirx.const(15, "int64"))

    return math.bind(distance, of)


@pytest.mark.parametrize("both_directions", [False, True])
def test_buckets_of_relative_positions_compile(tmp_path: Path, both_directions: bool) -> None:
    distance = np.arange(-3 * SIZE // 2, 3 * SIZE // 2, 3, dtype=np.int64)
    made = _computed(lambda v: _bucket(v, both_directions), distance, tmp_path)
    size = np.abs(distance) if both_directions else np.maximum(-distance, 0)
    far = 8 + (np.log(np.maximum(size, 1) / 8) * 8 / np.log(16)).astype(np.int64)
    wanted = np.where(size < 8, size, np.minimum(far, 15)) + 16 * (both_directions & (distance > 0))
    np.testing.assert_array_equal(made, wanted)


def test_a_byte_with_a_name_is_compared(tmp_path: Path) -> None:
    def wrapped(v: Any) -> Any:
        nine = tirx.const(9, "int64")
        return math.bind(tirx.Cast("int64", v), lambda n: tirx.Select(n + nine < nine * n, n, -n))

    values = np.arange(-SIZE // 2, SIZE // 2, dtype=np.int8)
    wide = values.astype(np.int64)
    made = _computed(wrapped, values, tmp_path)
    np.testing.assert_array_equal(made, np.where(wide + 9 < 9 * wide, wide, -wide))
