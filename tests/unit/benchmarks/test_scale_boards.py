"""What a benchmark of killed boards says of a recovery, and of records that are lost."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.scale import __main__ as command
from benchmarks.scale.boards import PARTS, Trial, lost_and_surplus, overhead, rate, recovery_s
from benchmarks.scale.simulated import SimulatedBoard


def _entry(board: str, begin: float, end: float) -> dict[str, Any]:
    return {"library": f"{board}{begin}", "board": board, "begin": begin, "end": end}


JOURNAL = [
    *(_entry("a", 0.0, 3.0), _entry("b", 1.0, 4.0)),
    *(_entry("a", 6.0, 9.0), _entry("b", 7.0, 11.0), _entry("b", 12.0, 13.0)),
]


@pytest.mark.parametrize("boards", [1, 8])
def test_boards_that_are_never_idle_are_as_fast_as_one_each(boards: int) -> None:
    journal = [_entry(f"{board}", 3.0 * k, 3.0 * k + 3.0) for board in range(boards) for k in range(5)]
    assert rate(journal) == pytest.approx(boards / 3.0)


def test_overhead_is_how_long_a_board_stands_and_an_answer_what_a_call_takes_beyond_its_measurement() -> None:
    journal = [_entry("a", 12.5, 14.0), _entry("a", 10.0, 12.0), _entry("b", 13.25, 14.0)]
    journal.append(_entry("b", 10.0, 13.0))
    # The first was called when its board was free, the second a second before that; of others nobody heard.
    calls = {"a10.0": (9.75, 12.25), "a12.5": (11.0, 14.25)}
    assert overhead(calls, journal) == {"overhead_ms": 375.0, "answer_ms": 625.0}
    assert set(overhead({}, journal[2:3]).values()) == {None}


def test_simulated_boards_measure_as_fast_as_each_other_and_do_not_end_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    ends = []
    for number in range(8):
        board = SimulatedBoard(f"sim-{number}", number, 2.0, tmp_path)
        slept.clear()
        for k in range(10):
            board.measure_kernel(1, "product", (), bytes([number, k]))
        assert sum(slept) == pytest.approx(20.0)
        assert min(slept) >= 1.6 and max(slept) <= 2.4
        assert len((tmp_path / f"sim-{number}.jsonl").read_text().splitlines()) == 10
        ends.append(slept[0])
    assert len(set(ends)) == 8


def test_recovery_ends_with_the_slowest_boards_first_measurement() -> None:
    assert recovery_s(JOURNAL, ["a", "b"], killed=5.0) == 6.0


@pytest.mark.parametrize(("names", "killed"), [(["a", "b"], 6.5), (["a", "b", "never"], 5.0), (["a"], 100.0)])
def test_a_board_that_measures_nothing_after_the_kill_gives_no_figure(
    names: list[str], killed: float
) -> None:
    assert recovery_s(JOURNAL, names, killed) is None


@pytest.mark.parametrize(
    ("before", "found", "trials", "expected"),
    [
        ("", "1p 2q", 2, (0, 0)),
        ("1p", "1p 2q", 2, (0, 0)),
        ("1p", "2q", 2, (1, 0)),
        ("1p", "3p 2q", 2, (1, 0)),
        ("1p", "3p", 2, (2, 0)),
        ("", "1p 2p 3q", 3, (1, 0)),
        ("", "1p 2q 3r", 2, (0, 1)),
        ("1p 2q", "", 4, (4, 0)),
        ("1p 2p", "3q", 2, (2, 0)),
    ],
    ids=[
        *(
            "nothing",
            "kept",
            "gone is missing too",
            "gone and measured again",
            "gone, again, another missing",
        ),
        *("a duplicate hides nothing", "surplus", "all", "both records of a program"),
    ],
)
def test_a_loss_counts_once(before: str, found: str, trials: int, expected: tuple[int, int]) -> None:
    """A word is a record: its key, and its program."""

    def records(words: str) -> dict[str, str]:
        return {word[0]: word[1] for word in words.split()}

    assert lost_and_surplus(records(before), records(found), trials) == expected


def test_no_recovery_is_null_and_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Trial, "figures", lambda trial: {"kill": trial.kill, "recovery_s": None})
    path = tmp_path / "result.json"
    line = f"scale --nodes 3 --trials 7 --kill board --json {path}"
    monkeypatch.setattr(sys, "argv", line.split())
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert str(ended.value.code) == (
        "recovery_s is unknown: a board measured nothing after board was killed; give it more --trials than 7"
    )
    assert json.loads(path.read_text())["recovery_s"] is None
    assert '"recovery_s": null' in capsys.readouterr().out


def test_a_run_for_each_part_goes_on_after_the_last_one_that_is_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[str | None] = []

    def figures(trial: Trial, alone: float | None = None) -> dict[str, Any]:
        if len(made) == 2:
            raise RuntimeError("the tuning does not end")
        made.append(trial.kill)
        same = {"nodes": trial.nodes, "boards": trial.boards, "measurement_s": trial.seconds}
        trials = trial.trials * trial.boards
        return {**same, "trials": trials, "kill": trial.kill, "alone_per_s": alone or 0.5, "recovery_s": 1.0}

    monkeypatch.setattr(Trial, "figures", figures)
    path = tmp_path / "result.json"
    monkeypatch.setattr(sys, "argv", f"scale --nodes 3 --kill every --json {path}".split())
    with pytest.raises(RuntimeError):
        command.main()
    assert made == [None, "worker"] and not path.exists()
    made.clear()
    with pytest.raises(RuntimeError):
        command.main()
    assert made == ["board", "board-host"]
    made.clear()
    command.main()
    assert made == ["head", "database"]
    assert [run["kill"] for run in json.loads(path.read_text())["runs"]] == [None, *PARTS]
    assert [run["alone_per_s"] for run in json.loads(path.read_text())["runs"]] == [0.5] * 6
    assert list(tmp_path.iterdir()) == [path]
    made.clear()
    with pytest.raises(RuntimeError):
        command.main()
    assert made == [None, "worker"], "a finished benchmark begins anew"
