"""Whatever the decisions, a program of the Winograd rule computes the convolution."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir, tirx

from host.errors import ScheduleError
from host.model import DeviceProfile, Energy, Measurement
from host.records import Record, RecordStore
from host.records.store import profile_data
from host.schedules import scheduled_function, space_for
from targets import board_for, declared
from tests.scheduling.repetitions import in_turn
from tests.unit.lowering.harness import normal
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cpu.winograd_cases import Image, convolution, space_of

BOARDS = {restrict: fn.board(restrict, 2) for restrict in ("", "avx2")}
BOARD = BOARDS["avx2"]


def _result(image: Image, channels: int, padding: tuple[int, ...]) -> tuple[int, ...]:
    batch, height, width, _ = image
    top, left, bottom, right = padding
    return batch, height + top + bottom - 2, width + left + right - 2, channels


@in_turn(
    "form, outputs, threads",
    [
        ((1, 2, 2, 64), 16, (1, 1, 1, 1)),
        ((1, 15, 7, 3), 48, (1, 1, 1, 1)),
        ((2, 8, 13, 17), 32, (0, 1, 2, 0)),
        ((1, 12, 9, 32), 64, (0, 0, 0, 0)),
    ],
    [2, 4],
    [1, 2],
)
def test_random_programs_compute_the_convolution(
    form: tuple[Image, int, tuple[int, ...]], outputs: int, threads: int
) -> None:
    image, channels, padding = form
    data, shape = normal(*image), _result(image, channels, padding)
    direct, weights = convolution(BOARD, image, channels, padding, None)
    wanted = fn.run(direct.function, [data, *weights], shape, BOARD.tvm_target)
    task, weights = convolution(BOARD, image, channels, padding, outputs)
    space = space_for(task, BOARD.hardware, threads)
    assert space.rule.name == "winograd"
    generator = random.Random(threads)
    for _ in range(2):
        candidate = space.candidate(space.sample(generator), "random")
        scheduled = scheduled_function(space.apply(candidate))
        found = fn.run(scheduled, [data, *weights], shape, BOARD.tvm_target)
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5, err_msg=str(candidate.decisions))


def test_every_combination_of_decisions_applies() -> None:
    """All legal programs of a small convolution can be scheduled."""
    space = space_of(BOARD, (1, 8, 4, 16), 16, 4, threads=2)
    names = [decision.name for decision in space.decisions]
    count = 0
    for choice in itertools.product(*(decision.choices for decision in space.decisions)):
        values = dict(zip(names, choice, strict=True))
        if space.legal(values):
            space.apply(space.candidate(values, "all"))
            count += 1
    assert count > 20


def _written_out(statement: Any) -> int:
    """Stores in the code of a statement, those of unrolled loops once for each iteration."""
    if isinstance(statement, tirx.For):
        times = int(statement.extent) if statement.kind == tirx.ForKind.UNROLLED else 1
        return times * _written_out(statement.body)
    if isinstance(statement, tirx.SeqStmt):
        return sum(_written_out(part) for part in statement.seq)
    if isinstance(statement, s_tir.SBlockRealize):
        assert statement.block.init is None
        return _written_out(statement.block.body)
    if isinstance(statement, tirx.IfThenElse):
        assert statement.else_case is None
        return _written_out(statement.then_case)
    assert isinstance(statement, tirx.BufferStore | tirx.Evaluate), type(statement)
    return 1


@pytest.mark.parametrize("outputs", [2, 4])
@pytest.mark.parametrize("name", ["local", "raspberry_pi_4", "visionfive2"])
def test_the_code_of_the_largest_programs_is_bounded(name: str, outputs: int) -> None:
    """Of every combination of the decisions that write code out, with some of the others."""
    board = BOARD if name == "local" else board_for(declared()[name])
    assert board is not None
    space = space_of(board, (1, 14, 14, 48), 64, outputs)
    names = [decision.name for decision in space.decisions]
    combinations = list(itertools.product(*(decision.choices for decision in space.decisions)))
    random.Random(0).shuffle(combinations)
    kept = {}
    for choice in combinations:
        values = dict(zip(names, choice, strict=True))
        if space.legal(values) and values["unroll"] != 2:
            kept.setdefault(tuple(values[one] for one in ("vectors", "rows", "unroll", "pad")), values)
    size = outputs + 2
    # Input and weights by columns and rows, products likewise, and the results.
    transforms = 2 * size**2 + (3 + size) * size + (size + outputs) * outputs + outputs**2
    sizes = []
    for values in kept.values():
        scheduled = scheduled_function(space.apply(space.candidate(values, "corner")))
        sizes.append(_written_out(scheduled.body) - transforms)
    # Accumulators are set to zero and written to in four steps; the rest pads and fetches ahead.
    assert max(sizes) <= 5 * board.hardware.vector_registers + 3
    assert max(sizes) > 20


def test_registers_are_not_overcommitted() -> None:
    for board in BOARDS.values():
        space = space_of(board, (1, 28, 28, 64), 64, 4)
        generator = random.Random(5)
        for _ in range(50):
            values = space.sample(generator)
            assert values["vectors"] * values["rows"] + 2 <= board.hardware.vector_registers


def test_blocks_of_channels_without_vectors_count_every_register() -> None:
    board = board_for(declared()["rv64gc"])
    assert board is not None
    assert board.hardware.lanes == 1
    space = space_of(board, (1, 28, 28, 16), 16, 4)
    unit = {"vectors": 1, "rows": 1, "tiles": 1, "unroll": 1, "pad": 0, "depth": 16, "span": 1}
    assert space.legal(unit)
    # 4 channels lie side by side: 7 tiles take 28 accumulators, 4 weights and an input, of 32 registers.
    assert not space.legal({**unit, "rows": 7})


def test_the_trace_carries_every_factor() -> None:
    """Applied to the unscheduled task, the trace gives the same program but for what it fetches ahead."""
    space = space_of(BOARD, (1, 12, 12, 32), 32, 4)
    schedule = space.apply(space.candidate(space.sample(random.Random(7)), "random"))
    again = s_tir.Schedule(tvm.IRModule({"main": space.task.function}))
    schedule.trace.apply_to_schedule(again, remove_postproc=False)
    functions = [one.mod["main"] for one in (schedule, again)]
    assert [function.script(show_meta=False).count("llvm.prefetch") for function in functions] == [1, 0]
    arguments = [normal(*(int(d) for d in p.shape), seed=9) for p in space.task.function.params[:-1]]
    found = [fn.run(function, arguments, (1, 12, 12, 32), BOARD.tvm_target) for function in functions]
    np.testing.assert_array_equal(*found)


def test_candidates_of_elsewhere_are_refused() -> None:
    space = space_of(BOARD, (1, 8, 8, 16), 16, 4)
    other = space_of(BOARD, (1, 8, 8, 16), 16, 2)
    good = space.candidate(space.sample(random.Random(0)), "random")
    with pytest.raises(ScheduleError, match="another task"):
        other.apply(good)
    old = replace(good, space_version=good.space_version + 1)
    with pytest.raises(ScheduleError, match="of version"):
        space.apply(old)
    with pytest.raises(ScheduleError, match="not legal"):
        space.apply(space.candidate({**dict(good.decisions), "tiles": 3}, "random"))


def test_candidates_come_back_from_records(tmp_path: Path) -> None:
    space = space_of(BOARD, (1, 8, 8, 16), 16, 4)
    profile = profile_data(DeviceProfile("desk", BOARD, BOARD.hardware, 1))
    good = space.candidate(space.sample(random.Random(1)), "random", 1e-6)
    with RecordStore(tmp_path / "records.sqlite") as store:
        store.append(
            [Record(good, profile, Measurement((1e-6,), Energy("unavailable", None, None, ""), {}, {}, 1))]
        )
        found = store.best(space.task.workload_hash, profile)
    assert found is not None
    assert found.candidate == good
    both = [scheduled_function(space.apply(candidate)) for candidate in (good, found.candidate)]
    assert tvm_ffi.structural_equal(*both)


def test_neighbours_are_mutual() -> None:
    space = space_of(BOARD, (1, 16, 16, 32), 64, 4)
    here = space.sample(random.Random(3))
    for other in space.neighbours(here):
        assert here in list(space.neighbours(other))
