"""Results of many models: the best peer, the summary, and going on where a run ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.e2e import __main__ as e2e
from benchmarks.e2e.summary import best_peer, summary_of
from benchmarks.result_file import read_result
from benchmarks.tables import models as tables


def entry(ours: float, bound: float = 0.05, **peers: float) -> dict[str, Any]:
    speeds = {name: time / ours for name, time in peers.items()}
    return {
        "verified": True,
        "latency_ms": {"edgetlm": ours, **peers},
        "speedup": speeds,
        "bounds": {name: [one - bound, one + bound] for name, one in speeds.items()},
    }


FAILED = {"verified": False, "latency_ms": {}, "speedup": {}, "error": "no such operator"}
MODELS = {
    "fast": entry(1.0, onnxruntime=2.0, openvino=1.5),
    "even": entry(1.0, onnxruntime=0.98, openvino=3.0),
    "slow": entry(1.0, onnxruntime=1.2, openvino=0.5),
    "broken": FAILED,
}


def test_a_speed_is_that_of_its_bounds() -> None:
    found = e2e.speeds_of({"edgetlm": 2.0, "slow": 5.0, "unbounded": 3.0}, {"slow": (2.2, 2.1, 2.3)})
    assert found == {"slow": (2.2, 2.1, 2.3), "unbounded": (1.5, None, None)}


def test_the_best_peer_is_the_fastest_one() -> None:
    found = best_peer(MODELS["slow"])
    assert found is not None
    assert (found.engine, found.speed, found.high) == ("openvino", 0.5, pytest.approx(0.55))
    assert best_peer(FAILED) is None


def test_only_what_is_slower_beyond_doubt_is_called_slower() -> None:
    found = summary_of(MODELS)
    assert (found["models"], found["failed"], found["slower"]) == (4, ["broken"], ["slow"])
    assert (found["least"], found["median"]) == (0.5, 0.98)
    assert found["geometric_mean"] == pytest.approx((1.5 * 0.98 * 0.5) ** (1 / 3))
    assert summary_of({"broken": FAILED})["median"] is None


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Names of the models that are deployed, with figures from nowhere; "stop" fails the first time."""
    found: list[str] = []
    tried: list[str] = []

    def deploy(subject: e2e.Subject, options: object) -> dict[str, Any]:
        tried.append(subject.name)
        if tried.count("stop") == 1 and subject.name == "stop":
            raise KeyboardInterrupt
        found.append(subject.name)
        return MODELS["fast"] | {"verified": True}

    monkeypatch.setattr(e2e, "find_subject", lambda text, *_: e2e.Subject(text, tmp_path / text, {}))
    monkeypatch.setattr(e2e, "deploy_apart", deploy)
    monkeypatch.setattr(e2e, "show", lambda *_: None)
    return found


def test_a_run_that_was_stopped_goes_on(deployed: list[str], tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    words = ["--models", "a", "b", "stop", "--resume", "--json", str(path)]
    with pytest.raises(KeyboardInterrupt):
        e2e.main(words)
    assert list(read_result(path).figures["models"]) == ["a", "b"]
    assert e2e.main(words) == 0
    assert deployed == ["a", "b", "stop"]
    assert list(read_result(path).figures["models"]) == ["a", "b", "stop"]
    assert e2e.main([*words, "--rounds", "9"]) == 0
    assert deployed[3:] == ["a", "b", "stop"], "another command is another result"


def test_the_table_shows_the_best_peer_and_the_mean(tmp_path: Path) -> None:
    from tests.unit.benchmarks.tables.test_result_file import CONTENT

    path = tmp_path / "result.json"
    path.write_text(json.dumps(CONTENT | {"schema": e2e.SCHEMA, "models": MODELS}))
    lines = tables.zoo(read_result(path))
    assert any("fast" in line and "1.50, 1.45 to 1.55" in line for line in lines)
    assert any("broken" in line and "no such operator" in line for line in lines)
    assert "geometric mean" in lines[-2] and "0.90" in lines[-2]
    assert "0.98; 0.50" in lines[-1]
