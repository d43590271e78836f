"""Tables of 256 bytes give the same bytes by the instruction and by single loads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from host.build import build_kernel_library
from host.build.kernel import lower_function
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cpu import dot_cases

HAS_VBMI = " avx512vbmi " in Path("/proc/cpuinfo").read_text(encoding="utf-8").replace("\n", " ")
TARGET = {
    "kind": "llvm",
    "mtriple": "x86_64-linux-gnu",
    "mcpu": "x86-64-v4",
    "mattr": ["-prefer-256-bit", "+avx512vbmi"],
}
LANES = (8, 16, 32, 64)


def kernel(lanes: int, dtype: str) -> tirx.PrimFunc:
    """The entries of a table for all bytes, in vectors."""
    x = te.placeholder((256,), "uint8", name="x")
    table = te.placeholder((256,), dtype, name="table")
    y = te.compute((256,), lambda i: table(x(i).astype("int32")), name="y")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([x, table, y]))
    _, inner = schedule.split(schedule.get_loops(schedule.get_sblock("y"))[0], [None, lanes])
    schedule.vectorize(inner)
    return schedule.mod["main"]


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_every_byte_finds_its_entry(dtype: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    given, entries = (
        draw.permutation(256).astype(np.uint8),
        draw.permutation(256).astype(np.uint8).view(dtype),
    )
    targets = {"single": tvm.target.Target(fn.board("avx2").tvm_target)}
    if HAS_VBMI:
        targets["vectors"] = tvm.target.Target(TARGET)
    for name, target in targets.items():
        functions = {f"kernel{lanes}": kernel(lanes, dtype) for lanes in LANES}
        module = tvm.runtime.load_module(
            str(build_kernel_library(functions, tmp_path / f"{name}.so", target))
        )
        for lanes in LANES:
            made = tvm.runtime.empty((256,), dtype)
            module[f"kernel{lanes}"](tvm.runtime.tensor(given), tvm.runtime.tensor(entries), made)
            np.testing.assert_array_equal(made.numpy(), entries[given])


def test_the_instruction_chooses() -> None:
    target = tvm.target.Target(TARGET)
    lowered = lower_function(kernel(16, "uint8"), "kernel", target)
    code = str(tvm.get_global_func("target.build.llvm")(lowered, target).inspect_source("s"))
    assert "vpermi2b" in code or "vpermt2b" in code
    assert "vpinsrb" not in code


def test_arm_looks_sixteen_bytes_up_by_four_choices() -> None:
    target = tvm.target.Target(dot_cases.arm_board().tvm_target)
    lowered = lower_function(kernel(16, "int8"), "kernel", target)
    code = str(tvm.get_global_func("target.build.llvm")(lowered, target).inspect_source("s"))
    counts = [code.count(f"\t{name}\tv") for name in ("tbl", "tbx")]
    assert counts[0] > 0 and counts[1] == 3 * counts[0]
    assert "ldrb" not in code
