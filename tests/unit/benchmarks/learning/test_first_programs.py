"""First programs beside chance: who may change what, which times are compared, and the table."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.first_programs import figures
from benchmarks.first_programs.figures import figures_of, geometric_means
from benchmarks.result_file import read_result, write_result
from benchmarks.tables import models as tables
from host.compile.static_model import Plan
from host.errors import UserError
from host.gensor import Gensor
from host.learned_estimate.observation import values_of
from host.schedules import DesignSpace, space_for
from host.schedules.families import rule_versions
from research.collection.constructed_model import ConstructedModel
from research.collection.dataset import MeasuredProgram, append_programs, current_programs
from tests.unit.benchmarks.tables.test_result_file import CONTENT
from tests.unit.learned_estimate.test_evidence import observed, tall_is_slow
from tests.unit.schedules import functions
from tests.unit.tuning.simulated import dense_space, profile


def true_s(space: DesignSpace, values: dict[str, int]) -> float:
    return tall_is_slow(space, values) if space.rule.name == "tiled" else space.estimate_s(values)


@dataclass(frozen=True, eq=False)
class Simulated(ConstructedModel):
    """A model whose bundles hold their seconds."""

    def bundle(self, plan: Plan, folder: Path) -> Path:
        times = [true_s(plan.spaces[key], values_of(one)) for key, one in plan.chosen.items()]
        folder.write_text(repr(sum(times)))
        return folder


def simulated(plan: Plan) -> Simulated:
    nothing: Any = None
    lowered: Any = SimpleNamespace(name="own")
    return Simulated(nothing, profile(), nothing, lowered, plan)


@pytest.fixture
def plan() -> Plan:
    """Three matrix products, and a softmax, of which nobody has measured anything."""
    softmax = space_for(functions.task(functions.lowered_softmax(8, 64), "softmax"), profile().hardware)
    spaces = {one.task.workload_hash: one for one in (*map(dense_space, ("a", "b", "c")), softmax)}
    assert {one.rule.name for one in spaces.values()} > {"tiled"}
    chosen = {key: Gensor().propose(space, profile(), (), 1, 0)[0] for key, space in spaces.items()}
    return Plan(spaces, chosen, {})


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[Path]]:
    """What was run in turn, on a machine that half of the time takes three times as long."""
    every: list[list[Path]] = []

    def run(bundles: Sequence[Path], threads: int) -> list[tuple[float, ...]]:
        every.append(list(bundles))
        return [tuple(float(one.read_text()) * slow for slow in (1.0, 3.0) * 2) for one in bundles]

    monkeypatch.setattr(figures, "run_in_turn", run)
    return every


def test_three_bundles_are_compared_in_one_run(plan: Plan, ran: list[list[Path]], tmp_path: Path) -> None:
    found = figures_of(simulated(plan), observed(tall_is_slow), tmp_path, seed=1)
    [bundles] = ran
    seconds = {path.name: float(path.read_text()) for path in bundles}
    assert list(seconds) == ["constructed", "learned", "ranked"]
    assert found["speed"]["value"] == pytest.approx(seconds["constructed"] / seconds["learned"])
    assert found["ranked"]["value"] == pytest.approx(seconds["constructed"] / seconds["ranked"])
    assert found["over_ranked"]["value"] == pytest.approx(seconds["ranked"] / seconds["learned"])
    assert found["speed"]["value"] > 1.0 and found["over_ranked"]["value"] > 1.0
    assert found["over_ranked"]["low"] is not None


def test_chance_has_the_kernels_that_learning_may_change(
    plan: Plan, ran: list[list[Path]], tmp_path: Path
) -> None:
    for seed in (2, 3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        found = figures_of(simulated(plan), observed(tall_is_slow), folder, seed)
        assert (found["kernels"], found["open"], found["rules"]) == (4, 3, ["tiled"])
        expected = 0.0
        for key, space in plan.spaces.items():
            values = values_of(plan.chosen[key])
            if space.rule.name == "tiled":
                generator = random.Random(f"{key}/{seed}")
                values = min((space.sample(generator) for _ in range(16)), key=space.estimate_s)
            expected += true_s(space, values)
        assert float((folder / "ranked").read_text()) == pytest.approx(expected)
    assert len({(tmp_path / seed / "ranked").read_text() for seed in "23"}) == 2


def test_where_no_rule_convinces_nothing_changes_and_nothing_runs(
    plan: Plan, ran: list[list[Path]], tmp_path: Path
) -> None:
    found = figures_of(simulated(plan), observed(tall_is_slow, tasks=2), tmp_path, seed=0)
    assert ran == [] and (found["open"], found["changed"], found["changed_at_random"]) == (0, 0, 0)
    assert all(found[name] == {"value": 1.0, "low": None, "high": None} for name in ("speed", "over_ranked"))


def entry(speed: float, ranked: float) -> dict[str, Any]:
    figures = {"speed": speed, "ranked": ranked, "over_ranked": speed / ranked}
    bounds = {name: {"value": one, "low": 0.9 * one, "high": 1.1 * one} for name, one in figures.items()}
    return {"changed": 2, "kernels": 5, "taught_by": 300, **bounds}


def test_each_figure_has_its_mean_and_its_column(tmp_path: Path) -> None:
    found = {"a": entry(1.2, 0.8), "b": entry(1.2, 0.9), "c": entry(1.2, 1.0)}
    means = geometric_means(found)
    assert means["speed"]["value"] == pytest.approx(1.2)
    assert means["ranked"]["value"] == pytest.approx(0.72 ** (1 / 3))
    assert means["over_ranked"]["value"] == pytest.approx(1.2 / 0.72 ** (1 / 3))
    assert means["over_ranked"]["n"] == 3
    write_result(tmp_path / "result.json", {**CONTENT, "models": found, "geometric_mean": means})
    head, _, first, *_, last = tables.first_programs(read_result(tmp_path / "result.json"))
    assert head.startswith("| model | learned, 95% | ranked, 95% | learned over ranked, 95% |")
    assert first.startswith("| a | 1.200 (1.080 to 1.320) | 0.800 (0.720 to 0.880) | 1.500 (")
    assert last.startswith("| geometric mean | 1.200 (1.200 to 1.200) | 0.896 (")


def test_programs_of_older_rules_teach_nothing(tmp_path: Path) -> None:
    version = rule_versions()["tiled"]
    old, now = (
        MeasuredProgram("model", "task", "dense", "tiled", one, {"rows": 4}, "uniform", (1.0,))
        for one in (version - 1, version)
    )
    path = tmp_path / "programs.jsonl"
    append_programs(path, [old])
    with pytest.raises(UserError, match="older rules only: collect again"):
        current_programs(path)
    append_programs(path, [now, old])
    assert current_programs(path) == [now]
