"""Records of a board on networks that taught nothing: constants that move, and how arms are compared."""

from __future__ import annotations

import gzip
import math
import random
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.learned_estimate.withheld import Kernel
from benchmarks.modelled_boards.moved_parts import MovedParts
from benchmarks.modelled_boards.withheld import Logs, board_logs, figures_of, read_boards
from host.errors import UserError
from host.learned_estimate.observation import EstimatedProgram, Observation
from host.schedules.families import rule_versions
from research.collection.dataset import MeasuredProgram, append_programs

_RULE = "tiled"


def _program(task: str, generator: random.Random) -> EstimatedProgram:
    parts = {"compute": generator.uniform(1e-5, 1e-4), "L2": generator.uniform(1e-5, 1e-4)}
    values = {"rows": generator.randint(1, 16), "vectors": generator.randint(1, 8)}
    return EstimatedProgram(task, values, {**parts, "total": sum(parts.values())})


def _seconds(program: EstimatedProgram, factor: float) -> float:
    """A board on which transfers from the second level take `factor` times as long as estimated."""
    return program.estimated_s["compute"] + factor * program.estimated_s["L2"]


def _observations(factor: float, tasks: int = 8, programs: int = 12) -> list[Observation]:
    generator = random.Random(0)
    found = []
    for number in range(tasks):
        for _ in range(programs):
            one = _program(f"task{number}", generator)
            offset = 1.0 + 0.5 * number
            found.append(Observation(_RULE, one, offset * _seconds(one, factor), f"model{number % 4}"))
    return found


@pytest.mark.parametrize("factor", [4.0, 0.25])
def test_a_part_that_takes_longer_is_found_whatever_the_tasks_take(factor: float) -> None:
    learned = MovedParts(_observations(factor))
    moves = dict(zip(learned.parts, learned.moves, strict=True))
    assert moves["L2"] - moves["compute"] == pytest.approx(math.log(factor), abs=0.25)


def test_nothing_moves_where_the_estimate_is_right_or_nothing_is_known() -> None:
    assert np.abs(MovedParts(_observations(1.0)).moves).max() < 0.01
    generator = random.Random(1)
    assert np.array_equal(MovedParts([]).correction([_program("task", generator)]), [0.0])


def test_arms_that_learn_a_board_are_ahead_and_shuffled_ones_are_not() -> None:
    observations = _observations(8.0)
    kernels = []
    for task in sorted({one.program.task for one in observations}):
        own = [one for one in observations if one.program.task == task]
        programs = tuple(one.program for one in own)
        seconds = np.array([one.seconds for one in own])
        drawn = ("gensor",) * 5 + ("uniform",) * (len(own) - 5)
        kernels.append(Kernel(own[0].model, task, _RULE, 1, programs, seconds, drawn, 0))
    logs: Logs = defaultdict(lambda: defaultdict(list))
    board_logs("board", observations, kernels, 60, 0, logs)
    found = figures_of(logs)
    for pool in ("all", "drawn", "constructed"):
        arms = found[pool]
        # What convinces is chosen as without evidence, and anything else is the least estimate.
        assert arms["deployed"]["value"] > 1.0
        false, anyway = (arms[f"{arm}_shuffled"]["value"] for arm in ("deployed", "process_mean"))
        assert min(false, 1.0) >= min(anyway, 1.0)
        assert arms["parts"]["n"] == 8
        # Of five constructed programs of a task, fewer are better than the first.
        ahead = 1.01 if pool == "constructed" else 1.05
        assert arms["parts"]["value"] > ahead * arms["parts_shuffled"]["value"]
        assert arms["fastest"]["value"] >= arms["parts"]["value"] > 0.97 * arms["fastest"]["value"]
    # Chance with the same ranker is beside the choices among constructed programs alone.
    chosen = found["constructed"]
    assert chosen["drawn_mean"]["value"] > 1.02 * chosen["drawn_t"]["value"]
    assert "drawn_mean" not in found["all"]


def test_programs_of_machines_are_read_beside_those_of_modelled_boards(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no programs of any board"):
        read_boards([tmp_path], [])
    one = MeasuredProgram(
        "net",
        "task",
        "dense",
        "tiled",
        rule_versions()["tiled"],
        {"rows": 1},
        "gensor",
        (1.0,),
        1,
        {"total": 1.0},
        True,
    )
    append_programs(tmp_path / "raspberry_pi_4.jsonl", [one])
    append_programs(tmp_path / "here.jsonl", [one, replace(one, decisions={"rows": 2}, first=False)])
    for wrong in (f"machine={tmp_path / 'none.jsonl'}", str(tmp_path / "here.jsonl")):
        with pytest.raises(UserError, match="no such file"):
            read_boards([tmp_path], [wrong])
    found = read_boards([tmp_path], [f"machine={tmp_path / 'here.jsonl'}"])
    assert {board: len(known) for board, (known, _) in found.items()} == {"raspberry_pi_4": 1, "machine": 2}
    plain = tmp_path / "raspberry_pi_4.jsonl"
    (tmp_path / "raspberry_pi_4.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    with pytest.raises(UserError, match=r"raspberry_pi_4\.jsonl lies beside raspberry_pi_4\.jsonl\.gz"):
        read_boards([tmp_path], [])
    plain.unlink()
    assert [len(known) for known, _ in read_boards([tmp_path], []).values()] == [1]
