"""The finals on a board at the level of the device, from opening sessions to the choice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from host.compare.comparison import ComparisonSettings, compare_engines, compare_variants, why_excluded
from host.compare.entrants import Entrant
from host.compare.selection import require_sensor
from host.errors import EngineError, MeasureError, UserError
from host.model import BOARD, GoldenCase, Signature, Start, TensorSpec
from host.progress import Silence, StageClock
from tests.unit.compare.power_samples import Board, Session

SIGNATURE = Signature((TensorSpec("x", (2,), "float32"),), (TensorSpec("y", (2,), "float32"),))
GOLDEN = (GoldenCase((np.ones(2, np.float32),), (np.ones(2, np.float32),)),)
# By path: seconds of a run, and share of the board's watts.
VARIANTS = {"fast": (0.010, 1.0), "slow": (0.0102, 0.8), "wrong": (0.005, 0.1), "gpu": (0.002, 2.0)}


class Opened(Session):
    """A session that learns by loading what it is."""

    name, mapped = "", False

    def load(self, path: Path, trust: str, mapped: bool) -> None:
        self.mapped = mapped
        if path.name == "broken":
            raise EngineError("it does not load")
        self.name = path.name
        self.seconds, self.watts = VARIANTS[path.name]
        self.start = Start(self.seconds, 2 * self.seconds)

    def close(self) -> None:
        self.closed = True

    def run(self, inputs: Any) -> list[np.ndarray]:
        return [np.full(2, 2.0 if self.name == "wrong" else 1.0, np.float32)]


class Device(Board):
    """A board that opens sessions, with or without a sensor."""

    sensed = True
    timing = BOARD
    # By path, of sessions that are closed.
    mapped: Mapping[str, bool] = MappingProxyType({})

    def sensor(self) -> dict[str, Any]:
        return {"unavailable": None if self.sensed else "no sensor here"}

    def state(self) -> dict[str, Any]:
        return {"temperatures_c": {"cpu": 40.0}}

    @contextmanager
    def open_session(self, engine: str, threads: int, time_limit_s: float) -> Iterator[Opened]:
        session = Opened(self, 0.0, energy_known=self.sensed)
        yield session
        self.mapped = {**self.mapped, session.name: session.mapped}


class Notes(Silence):
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


def variants(*names: str) -> tuple[Entrant, ...]:
    return tuple(Entrant(name, "tvm", Path(name), 1) for name in names)


def held(device: Device, names: tuple[str, ...], **options: Any) -> tuple[Any, Notes]:
    notes = Notes()
    return compare_variants(settings_for(device, notes, **options), variants(*names)), notes


def settings_for(device: Device, notes: Notes, **options: Any) -> ComparisonSettings:
    clock = StageClock(notes)
    inputs = [GOLDEN[0].inputs]
    return ComparisonSettings(device, SIGNATURE, GOLDEN, inputs, clock, rounds=6, **options)  # type: ignore[arg-type]


def board(sensed: bool = True) -> Device:
    device = Device({"schedutil": (1.0, 6.0), "powersave": (2.0, 2.0)}, locked={})
    device.sensed = sensed
    return device


def test_less_energy_is_taken_where_it_was_asked_for() -> None:
    result, _ = held(board(), ("fast", "slow"), objective="energy")
    assert result.taken.name == "slow"
    assert held(board(), ("fast", "slow"))[0].taken.name == "fast"
    assert held(board(), ("fast", "slow"), power_cap_w=5.0)[0].taken.name == "slow"


def test_models_that_are_open_side_by_side_have_their_weights_in_like_pages() -> None:
    two, one = board(), board()
    held(two, ("fast", "slow"))
    assert two.mapped == {"fast": True, "slow": True}
    held(one, ("fast",))
    assert one.mapped == {"fast": False}


def test_each_variant_says_how_long_it_took_to_its_first_output() -> None:
    result, _ = held(board(), ("fast", "slow"))
    assert {point.name: point.start for point in result.points} == {
        "fast": Start(0.010, 0.020),
        "slow": Start(0.0102, 0.0204),
    }


def test_a_gpu_is_taken_where_it_is_faster_and_below_the_cap() -> None:
    assert held(board(), ("fast", "gpu"))[0].taken.name == "gpu"
    assert held(board(), ("fast", "gpu"), power_cap_w=13.0)[0].taken.name == "gpu"
    capped = held(board(), ("fast", "gpu"), power_cap_w=10.0)[0]
    assert capped.taken.name == "fast"
    # What it would have been is told all the same.
    assert {point.name for point in capped.points if point.measurement is not None} == {"fast", "gpu"}
    result, _ = held(board(), ("fast", "gpu"), power_modes=("all",))
    assert {(point.name, point.mode) for point in result.points} == {
        (name, mode) for name in ("fast", "gpu") for mode in ("schedutil", "powersave")
    }


def test_wrong_outputs_and_what_does_not_load_are_out_with_their_reason() -> None:
    result, notes = held(board(), ("fast", "wrong", "broken"), objective="energy")
    assert result.taken.name == "fast"
    reasons = {point.name: point.why_excluded for point in result.points}
    assert reasons["broken"] == "it does not load"
    assert reasons["wrong"].startswith("it gives wrong outputs: output 'y' differs")
    assert any("variant wrong on 1 threads is excluded" in text for text in notes.said)
    with pytest.raises(EngineError, match="no variant of the model runs: it does not load"):
        held(board(), ("broken",))


def test_without_a_sensor_modes_are_compared_by_latency_and_it_is_said() -> None:
    result, notes = held(board(sensed=False), ("fast",), power_modes=("all",))
    assert [point.mode for point in result.points] == ["schedutil", "powersave"]
    assert result.front.reason == "no sensor here"
    assert "energy is unavailable (no sensor here): modes are compared by latency alone" in notes.said
    assert result.taken.mode == "schedutil"


def test_no_window_of_energy_is_taken_without_a_sensor() -> None:
    for sensed, taken in ((False, 0), (True, 1)):
        device, notes = board(sensed), Notes()
        found = compare_engines(settings_for(device, notes), variants("fast"))
        one = found.results["fast"]
        assert (len(one.windows), len(one.rounds_s)) == (taken, 6)
        assert one.energy is not None
        assert one.energy.reason == ("" if sensed else "no sensor here")


def test_what_needs_a_sensor_is_refused_at_once() -> None:
    for objective, cap_w, asked in (
        ("energy", None, "--objective energy"),
        ("edp", None, "--objective edp"),
        ("latency", 5.0, "--power-cap 5"),
    ):
        with pytest.raises(MeasureError, match=f"{asked}: board cannot measure it .no sensor here"):
            require_sensor(board(sensed=False), objective, cap_w)  # type: ignore[arg-type]
    require_sensor(board(sensed=False), "latency", None)  # type: ignore[arg-type]


def test_a_board_whose_modes_are_locked_says_why() -> None:
    device = board()
    device.locked = {"schedutil": "needs root", "powersave": "needs root"}
    result, notes = held(device, ("fast",), power_modes=("all",))
    assert [point.mode for point in result.points] == ["schedutil"]
    assert "power mode powersave is not measured: needs root" in notes.said
    assert "board has no power mode that its agent may set" in notes.said
    device.gone = True
    with pytest.raises(UserError, match="--power-modes: board lists none"):
        held(device, ("fast",), power_modes=("all",))


def test_what_cannot_be_measured_is_known_before_anything_is() -> None:
    settings = settings_for(board(), Notes())
    found = [why_excluded(settings, one) for one in variants("fast", "wrong", "broken")]
    assert found[0] == "" and found[2] == "it does not load"
    assert found[1].startswith("it gives wrong outputs: ")


def test_a_session_that_was_opened_before_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    device = board()
    asked: list[tuple[Any, str, int]] = []

    class Prestarted:
        def take(self, device: Any, engine: str, threads: int) -> Any:
            asked.append((device, engine, threads))
            return closing(Opened(device, 0.0, energy_known=True)) if len(asked) == 1 else None

    opened: list[str] = []
    anew = device.open_session

    def open_session(engine: str, threads: int, time_limit_s: float) -> Any:
        opened.append(engine)
        return anew(engine, threads, time_limit_s)

    monkeypatch.setattr(device, "open_session", open_session)
    settings = settings_for(device, Notes(), prestarted=Prestarted())
    [first, second] = variants("fast", "slow")
    assert why_excluded(settings, first) == "" and opened == []
    assert why_excluded(settings, second) == "" and opened == ["tvm"]
    assert asked == [(device, "tvm", 1)] * 2
