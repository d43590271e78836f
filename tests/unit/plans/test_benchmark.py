"""The benchmark of plans: its figures from known times, and one whole run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from benchmarks.plans.__main__ import SCHEMA, WITHOUT, WITHOUT_ALL, compared, main, summary_of
from benchmarks.reproduce import RUNS
from host.plans.proposers import CHANCE, ESTIMATE
from tests.integration.small_models import floats, save


def _entries(*arms: str) -> list[dict[str, object]]:
    return [
        {"arm": arm, "plan": f"plan {number}", "estimate_ms": float(number), "bundle": Path("none")}
        for number, arm in enumerate(arms)
    ]


def test_the_best_measured_plan_is_chosen_by_other_rounds_than_it_is_timed_by() -> None:
    own = [1.0] * 6
    # Faster in the rounds that choose, slower in those that time.
    lucky = [0.5, 2.0] * 3
    steady = [0.8] * 6
    found = compared(_entries("passes", ESTIMATE, ESTIMATE, CHANCE), [own, lucky, steady, [1.25] * 6])
    assert found["best_measured_by_estimate"]["plan"] == "plan 1"
    assert found["best_measured_by_estimate"]["speed"]["value"] == pytest.approx(0.5)
    assert found["first_by_estimate"] == {"plan": "plan 1", "speed": found["plans"][1]["speed"]}
    assert found["plans"][2]["speed"]["value"] == pytest.approx(1.25)
    # The present plan stays where no plan of chance is faster.
    assert found["best_measured_by_chance"] == {"plan": "plan 0", "speed": {"value": 1.0}}
    assert "bundle" not in found["plans"][0]


def test_the_summary_is_the_geometric_mean_over_the_models_that_have_an_arm() -> None:
    fast, slow = ({"first_by_estimate": {"speed": {"value": value}}} for value in (4.0, 1.0))
    assert summary_of({"a": fast, "b": slow, "c": {}}) == {"first_by_estimate": pytest.approx(2.0)}


def test_plans_of_a_model_are_compared(tmp_path: Path) -> None:
    weights = {"w": np.random.default_rng(0).normal(size=(16, 16, 3, 3)).astype(np.float32)}
    node = helper.make_node("Conv", ["image", "w"], ["out"], pads=[1, 1, 1, 1])
    interface = [floats("image", 1, 16, 8, 8)], [floats("out", 1, 16, 8, 8)]
    model = save(tmp_path / "net.onnx", [node], *interface, weights)
    result, folder = tmp_path / "plans.json", tmp_path / "kept"
    # Of a run before.
    (folder / "plans" / "net" / "0").mkdir(parents=True)
    words = [str(model), "--count", "1", "--rounds", "4", "--folder", str(folder), "--json", str(result)]
    assert main(words) == 0
    content = json.loads(result.read_text())
    assert content["schema"] == SCHEMA
    rows = content["models"]["net"]["plans"]
    assert [row["arm"] for row in rows] == ["passes", ESTIMATE, CHANCE]
    assert not rows[0]["departures"] and all(row["departures"] for row in rows[1:])
    assert rows[0]["speed"]["value"] == 1.0 and all(row["median_ms"] > 0 for row in rows)
    assert content["summary"].keys() >= {"first_by_estimate", "best_measured_by_chance"}
    words[1:3] = ["--count", "0", "--without", "lanes"]
    assert main(words) == 0
    rows = json.loads(result.read_text())["models"]["net"]["plans"]
    assert [row["arm"] for row in rows] == ["passes", f"{WITHOUT}lanes"]
    assert rows[1]["departures"] and all("lanes" in clause for clause in rows[1]["departures"])
    words[4] = "lanes,bands,inputs"
    # There are no bands and no inputs in this model, so that all three are the lanes again.
    assert main(words) == 0
    found = json.loads(result.read_text())["models"]["net"]
    assert [row["arm"] for row in found["plans"]] == ["passes", f"{WITHOUT}lanes", WITHOUT_ALL]
    assert found["plans"][1]["plan"] == found["plans"][2]["plan"]
    assert {f"first_by_{WITHOUT}lanes", f"first_by_{WITHOUT_ALL}"} <= found.keys()


def test_kinds_that_nothing_decides_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["net.onnx", "--without", "lanes,lane"])
    assert "no kind of decisions 'lane': give some of algorithm, lanes" in capsys.readouterr().err


def test_the_committed_result_has_its_command() -> None:
    # The command that makes the committed result.
    assert RUNS["plans"].words()[1:3] == ["-m", "benchmarks.plans"]
