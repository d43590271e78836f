"""Bytes of four vectors put side by side are the same by one order of bytes and by shifts."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import tvm
import tvm_ffi
from tvm import te, tirx

from host.build import build_kernel_library
from host.build.kernel import lower_function
from tests.unit.schedules import functions as fn
from tests.unit.tensor_ir.test_byte_tables import HAS_VBMI, TARGET

SIZE = 64
NAME = "edgetlm_interleaved_16"


def kernel(lanes: int, last: int = 24) -> tirx.PrimFunc:
    """Four rows of bytes as numbers of 32 bits, the last row shifted by `last` bits."""
    x = te.placeholder((4, SIZE), "uint8", name="x")

    def joined(i: tirx.Var) -> tirx.PrimExpr:
        a, b, c, d = (x(row, i).astype("int32") for row in range(4))
        return a | (b << 8) | (c << 16) | (d << last)

    y = te.compute((SIZE,), joined, name="y")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([x, y]))
    _, inner = schedule.split(schedule.get_loops(schedule.get_sblock("y"))[0], [None, lanes])
    schedule.vectorize(inner)
    return schedule.mod["main"]


def test_each_lane_has_its_four_bytes_in_order(tmp_path: Path) -> None:
    """Both forms compile on every machine; the instruction runs where the processor has it."""
    targets = {"moves": tvm.target.Target(fn.board("avx2").tvm_target), "choice": tvm.target.Target(TARGET)}
    given = np.random.default_rng(0).integers(0, 256, (4, SIZE)).astype(np.uint8)
    for name, target in targets.items():
        functions = {f"kernel{lanes}": kernel(lanes) for lanes in (4, 8, 16)}
        library = build_kernel_library(functions, tmp_path / f"{name}.so", target)
        if name == "choice" and not HAS_VBMI:
            continue
        module = tvm.runtime.load_module(str(library))
        for function in functions:
            made = tvm.runtime.empty((SIZE,), "int32")
            module[function](tvm.runtime.tensor(given), made)
            np.testing.assert_array_equal(made.numpy().view(np.uint8).reshape(SIZE, 4), given.T)


def test_the_order_that_the_instruction_is_given_puts_four_bytes_in_each_lane() -> None:
    """The constant itself, on any machine: byte i of the result is byte order[i] of the four vectors."""
    lowered = lower_function(kernel(16), "kernel", tvm.target.Target(TARGET))
    imported: list[str] = []

    def visit(statement: tirx.AttrStmt) -> None:
        if statement.attr_key == "pragma_import_llvm":
            imported.append(statement.value.value)

    for function in lowered.functions.values():
        tvm_ffi.structural_walk(function.body, (tirx.AttrStmt, visit), order="pre")
    found = re.search(rf"@{NAME}_order = [^<]*<64 x i8> <([^>]*)>", "".join(imported))
    assert found is not None
    order = [int(entry.split()[1]) for entry in found.group(1).split(",")]
    vectors = np.random.default_rng(0).permutation(64).astype(np.uint8).reshape(4, 16)
    np.testing.assert_array_equal(vectors.reshape(-1)[order].reshape(16, 4), vectors.T)


def test_the_instruction_orders_four_bytes_a_lane_and_nothing_else() -> None:
    target = tvm.target.Target(TARGET)
    assert NAME in str(lower_function(kernel(16), "kernel", target))
    # Two rows in one place are a sum of bits and not an order of bytes.
    assert NAME not in str(lower_function(kernel(16, last=16), "kernel", target))
    assert NAME not in str(lower_function(kernel(8), "kernel", target))
