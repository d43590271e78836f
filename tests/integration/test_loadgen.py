"""MLPerf's LoadGen drives a bundle on this machine's agent."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path

import pytest

import sdk
from host.commands import loadgen
from host.errors import MeasureError, SessionLost, UserError
from sdk.cli.main import main
from tests.integration import small_models

ROOT = Path(__file__).parents[2]
pytest.importorskip("mlperf_loadgen", reason="LoadGen has wheels for x86-64 alone")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("loadgen")
    model = small_models.convnet(folder / "net.onnx")
    sdk.compile(model, output=folder / "bundle", threads=1)
    return folder / "bundle"


def test_the_command_adds_both_scenarios_to_the_figures(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = tmp_path / "figures.json"
    scenarios = ["--loadgen", "SingleStream", "--loadgen", "Offline"]
    command = ["profile", str(bundle), *scenarios, "--loadgen-seconds", "0.5"]
    assert main([*command, "--seed", "3", "--json", str(figures)]) == 0
    single, offline = json.loads(figures.read_text())["loadgen"]
    assert [single["scenario"], offline["scenario"]] == ["SingleStream", "Offline"]
    assert single["queries"] >= 64 and offline["queries"] >= 1
    assert single["valid"] is True
    latencies = single["latency_ms"]
    assert 0 < latencies["50"] <= latencies["90"] <= latencies["99"] <= latencies["99.9"]
    # One after the other: no more than fit into a second. A busy machine makes pauses between them.
    assert 0 < single["samples_per_s"] <= 1.05e3 / latencies["mean"]
    assert single["seed"] == 3 and "transport" in single["boundary"]
    printed = capsys.readouterr().out
    assert "SingleStream 90% " in printed and "queries from this host, valid" in printed


def test_seconds_of_this_host_are_no_figures_of_a_simulated_board(bundle: Path) -> None:
    board = f"replay:{ROOT / 'examples' / 'replay' / 'small_board.toml'}"
    with pytest.raises(MeasureError, match="is no board: leave --loadgen out"):
        loadgen.run_scenarios(bundle, ["SingleStream"], board)


def test_a_session_that_is_lost_ends_the_test_with_its_error(tmp_path: Path) -> None:
    calls = 0

    def run(inputs: list[object]) -> None:
        nonlocal calls
        calls += 1
        if calls > 20:
            raise SessionLost("the session ended")

    with pytest.raises(SessionLost, match="the session ended"):
        loadgen._run(run, [[]], "SingleStream", 0.2, 0, tmp_path / "log")
    assert calls == 21


def test_a_scenario_that_is_given_twice_is_refused() -> None:
    with pytest.raises(UserError, match="give each scenario once"):
        loadgen.check_scenarios(["Offline", "Offline"])


def test_a_log_without_results_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(':::MLLOG {"key": "result_validity", "value": "VALID"}\n')
    for path in (tmp_path / "log.txt", tmp_path / "absent.txt"):
        with pytest.raises(MeasureError, match="LoadGen wrote no results"):
            loadgen._results(path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--loadgen", "Server"], "--loadgen Server: use SingleStream or Offline"),
        (
            ["--loadgen", "Offline", "--loadgen-seconds", "0"],
            "--loadgen-seconds 0: give seconds from above 0",
        ),
    ],
)
def test_mistakes_are_refused_before_anything_is_measured(
    arguments: list[str], words: str, bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", str(bundle), *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_model_file_is_no_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = small_models.convnet(tmp_path / "net.onnx")
    assert main(["profile", str(model), "--loadgen", "Offline"]) == 2
    assert "--loadgen drives a bundle" in capsys.readouterr().err


def test_the_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "mlperf_loadgen", None)
    with pytest.raises(UserError, match=r"pip install 'edgetlm\[loadgen\]'"):
        loadgen.check_scenarios(["Offline"])


def test_a_plan_is_by_the_fastest_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ones are slow, and a plan of too few queries is not valid."""
    clock = itertools.accumulate(itertools.chain([0.0], [0.5, 0.0], itertools.cycle([0.001, 0.0])))
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    assert 0.0009 < loadgen._expected_s(lambda sample: None, []) < 0.0011
