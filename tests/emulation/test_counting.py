"""Counted kernels: the same results as under qemu, every instruction counted, and modelled cycles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import unicorn

from benchmarks.emulation.verify import run_around
from benchmarks.instructions.counted import GENSOR, count, counted
from benchmarks.instructions.counting import build_counter, count_blocks
from benchmarks.instructions.cycles import cycles_per_run
from benchmarks.operators.comparison import relative_error
from benchmarks.operators.configurations import Operator
from benchmarks.operators.subject import prepare
from host.gensor import Gensor
from host.model import DeviceProfile
from host.schedules import scheduled_function, space_for
from research.modelled_boards.listing import Block, Run, disassemble, executions, parse
from tests.emulation.boards import PROCESSORS, board_of
from tests.emulation.qemu import Call, executable, run
from tests.unit.schedules import functions as fn

ROWS, COLUMNS, DEPTH, LANES = 6, 16, 32, 4


def _arguments() -> tuple[np.ndarray, ...]:
    draw = np.random.default_rng(0)
    shapes = [tuple(int(d) for d in p.shape) for p in fn.dense(ROWS, COLUMNS, DEPTH, LANES).params]
    given = [draw.standard_normal(shape).astype("float32") for shape in shapes[:-1]]
    return (*given, np.zeros(shapes[-1], "float32"))


def _program(name: str, folder: Path) -> Path:
    board = board_of(name)
    task = fn.task(fn.dense(ROWS, COLUMNS, DEPTH, LANES))
    space = space_for(task, board.hardware)
    profile = DeviceProfile(name, board, board.hardware, 1)
    (candidate,) = Gensor().propose(space, profile, (), 1, seed=0)
    return executable(board, {GENSOR: scheduled_function(space.apply(candidate))}, folder)


@pytest.mark.parametrize("name", ["raspberry_pi_4", "visionfive2"])
def test_counts_are_those_of_single_steps(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks give what a hook on every instruction gives, and the program's results are right."""
    architecture = board_of(name).architecture
    program = _program(name, tmp_path)
    call = Call(GENSOR, _arguments())
    stepped: dict[int, int] = {}
    start = unicorn.Uc.emu_start

    def watched(engine: unicorn.Uc, *arguments: int) -> None:
        def step(_: unicorn.Uc, address: int, size: int, data: object) -> None:
            stepped[address] = stepped.get(address, 0) + 1

        engine.hook_add(unicorn.UC_HOOK_CODE, step)
        start(engine, *arguments)

    monkeypatch.setattr(unicorn.Uc, "emu_start", watched)
    values, blocks = count_blocks(program, [GENSOR], call, architecture, build_counter(tmp_path))
    counts = executions(disassemble(program, architecture), blocks)
    assert counts == stepped
    [expected] = run(program, [GENSOR], [call], architecture, PROCESSORS[name][0])
    np.testing.assert_array_equal(values[-1], expected[-1])
    assert np.abs(values[-1]).max() > 1.0


def test_figures_of_a_kernel(tmp_path: Path) -> None:
    board = board_of("raspberry_pi_4")
    task = fn.task(fn.dense(ROWS, COLUMNS, DEPTH, LANES))
    space = space_for(task, board.hardware)
    values = dict.fromkeys((decision.name for decision in space.decisions), 0)
    values |= {decision.name: decision.choices[0] for decision in space.decisions}
    profile = DeviceProfile("raspberry_pi_4", board, board.hardware, 1)
    (candidate,) = Gensor().propose(space, profile, (), 1, seed=0)
    functions = {
        GENSOR: scheduled_function(space.apply(candidate)),
        "unit": scheduled_function(space.apply(space.candidate(values, "unit"))),
    }
    found = count(functions, task, board, tmp_path, build_counter(tmp_path), None)
    least = ROWS * COLUMNS * DEPTH / board.hardware.lanes
    # A multiply-add for every vector at least; the unit program loads two operands for each.
    assert least < found[GENSOR].instructions < found["unit"].instructions
    assert least < found[GENSOR].estimated_cycles < found["unit"].estimated_cycles
    assert found["unit"].loop_cycles is not None and found["unit"].loop_fused >= 1


def test_the_pipeline_model_knows_the_processor() -> None:
    """Dependent multiply-adds wait for each other, independent ones do not; an A53 is not an A72."""
    text = "\n".join(
        ["0000000000001000 <kernel_a>:"]
        + [f"    {0x1000 + 4 * i:x}:      	fmla	v{i}.4s, v30.4s, v31.s[0]" for i in range(4)]
    )
    instructions = tuple(parse(text, "aarch64"))
    one, four = Run(instructions[:1], 1), Run(instructions, 1)
    fast, slow = (cycles_per_run([one, four], board_of(f"raspberry_pi_{n}")) for n in (4, 3))
    assert fast[1] == pytest.approx(fast[0], rel=0.1)
    assert slow[0] > fast[0]
    total = counted(list(instructions), {i.address: 10 for i in instructions}, board_of("raspberry_pi_4"))
    assert total.instructions == 40
    assert total.estimated_cycles == pytest.approx(10 * fast[1], rel=0.05)
    assert executions(list(instructions), [Block(0x1000, 16, 10)]) == {i.address: 10 for i in instructions}


def test_a_wrong_kernel_is_seen(tmp_path: Path) -> None:
    """The model's output comes from the kernel that is given, not from the one built for this machine."""
    operator = Operator("tiny", "matmul", "test", "MatMul", ((4, 8),), ((8, 12),))
    board = board_of("raspberry_pi_4")
    subject = prepare(operator, DeviceProfile("raspberry_pi_4", board, board.hardware, 1), tmp_path)

    def wrong(arguments: list[np.ndarray]) -> list[np.ndarray]:
        return [*arguments[:-1], np.full_like(arguments[-1], 7.0)]

    made = run_around(subject, tmp_path / "wrong.so", wrong)
    assert (made == 7.0).all()
    assert relative_error(made, subject.expected) > 1.0
