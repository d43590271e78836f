"""Boosted trees over measured programs learn an order within tasks, and nothing from single programs."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

pytest.importorskip("xgboost")

from benchmarks.learned_estimate.withheld import Kernel
from benchmarks.residual_trees.__main__ import chosen_logs
from benchmarks.residual_trees.features import program_features
from benchmarks.residual_trees.trees import ResidualTrees
from host.learned_estimate.observation import EstimatedProgram, Observation
from host.learned_estimate.process import Prediction
from tests.unit.tuning.simulated import dense_space


def _program(task: str, rows: int, vectors: int) -> EstimatedProgram:
    return EstimatedProgram(task, {"rows": rows, "vectors": vectors}, {"compute": 1e-5, "total": 2e-5})


def _observations(tasks: int) -> list[Observation]:
    """Tall tiles of many vectors take twice what is estimated; each task has an offset of its own."""
    generator = random.Random(0)
    found = []
    for task in range(tasks):
        offset = math.exp(generator.gauss(0.0, 0.5))
        for _ in range(8):
            rows, vectors = generator.choice((1, 2, 4, 8)), generator.choice((1, 2, 4))
            slow = 2.0 if rows * vectors >= 16 else 1.0
            program = _program(f"task{task}", rows, vectors)
            found.append(Observation("tiled", program, 2e-5 * offset * slow, "model"))
    return found


def test_they_learn_what_the_estimate_misses_whatever_the_offset_of_a_task() -> None:
    trees = ResidualTrees(_observations(20), seed=0)
    slow, fast = trees.correction([_program("new", 8, 4), _program("new", 2, 2)])
    assert slow - fast > 0.4


def test_tasks_with_a_single_program_teach_nothing() -> None:
    single = [Observation("tiled", _program(f"task{n}", 1 + n, 1), 1e-5 * (1 + n), "model") for n in range(6)]
    assert np.all(ResidualTrees(single, seed=0).correction([_program("new", 4, 1)]) == 0.0)


def test_a_choice_is_judged_within_its_pool() -> None:
    programs = tuple(_program("task", rows, 1) for rows in (1, 2, 4, 8))
    seconds = np.array([4e-5, 1e-5, 2e-5, 8e-5])
    kernel = Kernel("model", "task", "tiled", 1, programs, seconds, ("gensor", *["random"] * 3), 0)
    prediction = Prediction(np.array([0.0, -1.0, 0.0, 0.0]), np.zeros((4, 4)))
    corrections = {"trees": np.array([0.0, 0.0, -1.0, 0.0])}
    logs = chosen_logs(kernel, np.array([0, 2, 3]), prediction, corrections)
    assert logs["trees"] == pytest.approx(math.log(2.0))
    assert logs["process"] == pytest.approx(0.0)
    assert logs["fastest"] == pytest.approx(math.log(2.0))
    assert logs["chance"] == pytest.approx(math.log(4.0) - math.log(4.0 * 2.0 * 8.0) / 3.0)


def test_features_tell_what_a_taller_tile_changes() -> None:
    space = dense_space("described")
    generator = random.Random(0)
    drawn = [space.sample(generator) for _ in range(40)]
    found = [program_features(space.workload, space.hardware, values) for values in drawn]
    assert len({tuple(one) for one in found}) == 1
    for values, one in zip(drawn, found, strict=True):
        tile = values["vectors"] * values["rows"] * values["rows2"]
        assert one["accumulators"] == pytest.approx(math.log2(tile / space.hardware.vector_registers))
        # A dense product reads one vector for each of a tile's vectors, and one number for each row.
        assert 2.0 ** one["broadcasts"] * tile == pytest.approx(values["rows"] + 0.01)
        assert one["tile_bytes"] <= one["panel_bytes"] <= one["block_bytes"]
