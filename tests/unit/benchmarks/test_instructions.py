"""The parts of the instruction and emulation benchmarks that need neither emulator nor pipeline model."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from benchmarks.emulation.__main__ import entries_of, failure
from benchmarks.emulation.__main__ import summary as emulation_summary
from benchmarks.emulation.verify import Verdict
from benchmarks.instructions.__main__ import resumed
from benchmarks.instructions.compiling import LimitedCompiler
from benchmarks.instructions.figures import Counted, entry_of, summary
from benchmarks.instructions.shapes import MAX_FLOP, SMALL
from benchmarks.operators.configurations import CLASSES, OPERATORS
from benchmarks.result_file import write_result
from host.build import KernelCache, compile_kernel, target_for
from host.errors import BuildError, ScheduleError
from research.modelled_boards.listing import Block, executions, hot_loop, parse, runs_of, tool
from tests.unit.schedules import functions as fn

# Two nested loops, of which the inner one has a path that is rarely taken.
LISTING = """
kernels:	file format elf64-littleaarch64

Disassembly of section .text:

0000000000001000 <kernel_a>:
    1000:      	mov	x0, #4
    1004:      	mov	x1, #8
    1008:      	ldr	q1, [x2], #16
    100c:      	cbz	x3, 0x1014 <kernel_a+0x14>
    1010:      	nop
    1014:      	fmla	v0.4s, v1.4s, v2.s[0]
    1018:      	subs	x1, x1, #1
    101c:      	b.ne	0x1008 <kernel_a+0x8>
    1020:      	subs	x0, x0, #1
    1024:      	b.ne	0x1004 <kernel_a+0x4>
    1028:      	adrp	x9, 0x2000 <table>
    102c:      	ret

0000000000001030 <start>:
    1030:      	bl	0x1000 <kernel_a>
"""
BLOCKS = [
    Block(0x1000, 0x10, 1),
    Block(0x1004, 0x0C, 3),
    Block(0x1008, 0x08, 28),
    Block(0x1010, 0x10, 2),
    Block(0x1014, 0x0C, 30),
    Block(0x1020, 0x08, 4),
    Block(0x1028, 0x08, 1),
]


def test_executions_add_up_over_overlapping_blocks() -> None:
    instructions = parse(LISTING, "aarch64")
    counts = executions(instructions, BLOCKS)
    assert [counts.get(i.address, 0) for i in instructions] == [1, 4, 32, 32, 2, 32, 32, 32, 4, 4, 1, 1, 0]
    assert sum(counts.values()) == sum(block.runs * block.bytes // 4 for block in BLOCKS)
    assert {i.function for i in instructions} == {"kernel_a", "start"}


def test_the_hot_loop_is_the_innermost_without_its_rare_path() -> None:
    instructions = parse(LISTING, "aarch64")
    loop = hot_loop(instructions, executions(instructions, BLOCKS))
    assert loop is not None
    assert [i.address for i in loop.instructions] == [0x1008, 0x100C, 0x1014, 0x1018, 0x101C]
    assert loop.runs == 32
    assert sum(i.fused for i in loop.instructions) == 1


def test_straight_code_has_no_hot_loop() -> None:
    instructions = parse(LISTING, "aarch64")
    assert hot_loop(instructions, executions(instructions, [Block(0x1000, 0x10, 1)])) is None


def test_basic_blocks_end_at_branches_and_targets() -> None:
    instructions = parse(LISTING, "aarch64")
    found = runs_of(instructions, executions(instructions, BLOCKS))
    assert [(run.instructions[0].address, len(run.instructions), run.runs) for run in found] == [
        (0x1000, 1, 1),
        (0x1004, 1, 4),
        (0x1008, 2, 32),
        (0x1010, 1, 2),
        (0x1014, 3, 32),
        (0x1020, 2, 4),
        (0x1028, 2, 1),
    ]


def test_listings_of_riscv() -> None:
    text = """
0000000000001000 <kernel_b>:
    1000:      	flw	fa0, 0(a0)

0000000000001004 <.Lpcrel_hi0>:
    1004:      	fmadd.s	fa2, fa0, fa1, fa2
    1008:      	c.addi	a0, 4
    100a:      	bnez	a2, 0x1000 <kernel_b>
"""
    instructions = parse(text, "riscv64")
    assert [i.function for i in instructions] == ["kernel_b"] * 4
    assert [i.fused for i in instructions] == [False, True, False, False]
    assert [(i.branches, i.target) for i in instructions][-1] == (True, 0x1000)


def test_a_missing_tool_says_what_to_install() -> None:
    with pytest.raises(FileNotFoundError, match=r"llvm-none is not installed: run scripts/system-packages"):
        tool("llvm-none")


def _counted(instructions: int, cycles: float) -> Counted:
    return Counted(instructions, cycles, 10, 4, 5.0, 0.9)


def test_figures_of_an_operator_and_their_means() -> None:
    samples = [_counted(100, 90.0), _counted(80, 200.0), _counted(300, 400.0)]
    first = entry_of("matmul", 1e3, _counted(120, 45.0), samples)
    assert first["gensor"]["per_flop"] == pytest.approx(0.12)
    assert first["gensor"]["mca_cycles"] == 5.0
    # The fewest instructions are not of the program with the fewest cycles.
    assert (first["random64"]["best_instructions"], first["random64"]["best_cycles"]) == (80, 90.0)
    assert (first["random64"]["median_instructions"], first["random64"]["median_cycles"]) == (100, 200.0)
    second = entry_of("gemv", 1e3, _counted(120, 180.0), samples)
    found = summary({"a": first, "b": second, "c": {"class": "gemv", "error": "does not lower"}})
    assert found["geomean"]["cycles gensor/best"] == pytest.approx(math.sqrt(0.5 * 2.0))
    assert found["geomean"]["instructions gensor/best"] == pytest.approx(1.5)
    assert found["worst"]["cycles gensor/best"] == ["b", 2.0]
    json.dumps(found)


def test_programs_without_figures_are_listed() -> None:
    failed = [{"decisions": {"rows": 4}, "reason": "not compiled after 60 s"}]
    entry = entry_of("gemv", 1e3, _counted(120, 45.0), [_counted(100, 90.0)], failed)
    assert (entry["random64"]["programs"], entry["random64"]["failed"]) == (1, failed)
    with pytest.raises(ScheduleError, match="none of 1 random programs"):
        entry_of("gemv", 1e3, _counted(120, 45.0), [], failed)


def test_a_run_goes_on_from_its_file(tmp_path: Path) -> None:
    path, settings = tmp_path / "figures.json", {"schema": "s/1", "samples": 64}
    assert resumed(path, settings) == {}
    done = {"class": "gemv", "gensor": {}}
    operators = {"a": done, "b": {"class": "gemv", "error": "does not lower"}}
    write_result(path, {**settings, "operators": operators})
    assert [file.name for file in tmp_path.iterdir()] == ["figures.json"]
    # What failed is tried again.
    assert resumed(path, settings) == {"a": done}
    with pytest.raises(ValueError, match="another samples"):
        resumed(path, {**settings, "samples": 16})
    with pytest.raises(ValueError, match="needs --json"):
        resumed(None, settings)


def test_a_program_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    board = fn.board("", 1)
    function = fn.dense(4, 8, 8, 4)
    target = target_for(board)
    compiler = LimitedCompiler(KernelCache(tmp_path / "cache"), 1e-4)
    try:
        with pytest.raises(BuildError, match="not compiled after"):
            compiler.compile(function, target, tmp_path)
        compiler.limit_s = 300.0
        compiler.compile(function, target, tmp_path)
    finally:
        compiler.close()
    made = compile_kernel(function, "dense", target, compiler.cache)
    assert made.from_cache
    assert made.content == compile_kernel(function, "dense", target).content


def test_small_operators_are_of_every_class() -> None:
    assert {operator.kind for operator in SMALL} == set(CLASSES)
    assert len({operator.name for operator in SMALL}) == len(SMALL)
    assert MAX_FLOP == 20e6


def test_emulation_counts_what_is_wrong() -> None:
    operator = OPERATORS[0]
    right, wrong = Verdict("tiled", 1e-6), Verdict("tiled", math.inf)
    boards = {
        "rv64gcv": {"a": entries_of(operator, {"short": right, "long": wrong}), "b": {}},
        "raspberry_pi_4": {"a": failure(operator, "raspberry_pi_4", "no rule")},
    }
    found = emulation_summary(boards)
    assert found["rv64gcv short"] == {"verified": 1, "operators": 1, "max_rel_err": 1e-6, "failed": []}
    assert found["rv64gcv long"]["failed"] == ["a"]
    assert found["raspberry_pi_4 cortex-a72"]["verified"] == 0
