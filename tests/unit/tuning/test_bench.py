from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from host.errors import DeviceError, MeasureError, SessionLost
from host.gensor import Gensor
from host.model import Measurement
from host.tuning.bench import DeviceBench
from host.tuning.tasks import TuningTask
from tests.unit.tuning.simulated import dense_space, measured, profile


@dataclass
class FakeDevice:
    """A device whose measurements follow a script of times and errors."""

    script: list[float | Exception]
    closed: int = 0
    sessions: list[FakeSession] = field(default_factory=list)

    def open_session(self, engine: str, threads: int, time_limit_s: float) -> FakeSession:
        self.sessions.append(FakeSession(self))
        return self.sessions[-1]

    def close(self) -> None:
        self.closed += 1


@dataclass
class FakeSession:
    device: FakeDevice

    def __enter__(self) -> FakeSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class FakeRunner(FakeSession):
    def measure(self, library: Path, name: str, arguments: Any, **plan: Any) -> Measurement:
        assert library.is_file()
        assert [shape for shape, _ in arguments] == [(16, 64), (64, 64), (16, 64)]
        step = self.device.script.pop(0)
        if isinstance(step, Exception):
            raise step
        return measured(step)


@pytest.fixture(autouse=True)
def runner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "host.measure.kernels.KernelRunner", lambda session: FakeRunner(session.device), raising=True
    )


TASK = TuningTask(dense_space(), 1e-5)
GONE = DeviceError("desk: the device agent went away; connect again")


def bench(
    device: FakeDevice, folder: Path, others: list[FakeDevice | Exception], notes: list[str]
) -> DeviceBench:
    def connect() -> FakeDevice:
        found = others.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    return DeviceBench(device, profile(), connect, folder, notes.append, (0.0, 0.0))  # type: ignore[arg-type]


def library(folder: Path) -> Path:
    path = folder / "k.so"
    path.write_bytes(b"elf")
    return path


def test_a_device_that_comes_back_measures_on(tmp_path: Path) -> None:
    first, second = FakeDevice([1.0, GONE]), FakeDevice([2.0, 3.0])
    notes: list[str] = []
    with bench(first, tmp_path, [DeviceError("no route"), second], notes) as one:
        assert [one.measure(TASK, library(tmp_path)).median_s for _ in range(3)] == [1.0, 2.0, 3.0]
        assert one.device is second
    assert (first.closed, second.closed) == (1, 0), "the caller closes the one that it is left with"
    assert (len(first.sessions), len(second.sessions)) == (1, 1), "one session serves all programs"
    assert notes == [f"{GONE}; trying to reach it again", "desk is back"]
    assert not (tmp_path / "k.so").exists()


def test_a_device_that_stays_away_ends_with_what_to_do(tmp_path: Path) -> None:
    away = DeviceError("desk: no route to host")
    with (
        bench(FakeDevice([GONE]), tmp_path, [away, away], []) as one,
        pytest.raises(DeviceError, match=r"desk does not come back .*no route.*run the same command again"),
    ):
        one.measure(TASK, library(tmp_path))


def test_a_program_that_takes_the_device_away_is_at_fault(tmp_path: Path) -> None:
    third = FakeDevice([4.0])
    with bench(FakeDevice([GONE]), tmp_path, [FakeDevice([GONE]), third], []) as one:
        with pytest.raises(MeasureError, match="went away 2 times"):
            one.measure(TASK, library(tmp_path))
        assert one.measure(TASK, library(tmp_path)).median_s == 4.0


def test_a_program_that_crashes_costs_only_itself(tmp_path: Path) -> None:
    device = FakeDevice([SessionLost("kernel dense: crashed"), 1.0])
    with bench(device, tmp_path, [], []) as one:
        with pytest.raises(SessionLost):
            one.measure(TASK, library(tmp_path))
        assert one.measure(TASK, library(tmp_path)).median_s == 1.0


def test_programs_are_built_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with bench(FakeDevice([]), tmp_path, [], []) as one:
        made = Gensor().propose(TASK.space, profile(), (), 2, 0)
        paths = [one.build(TASK, candidate) for candidate in made]
    assert len({path.read_bytes() for path in paths}) == 2
    assert all(path.read_bytes().startswith(b"\x7fELF") for path in paths)
