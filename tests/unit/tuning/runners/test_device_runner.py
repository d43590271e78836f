from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from host.errors import DeviceBusy, DeviceError, SessionLost
from host.gensor import Gensor
from host.model import Measurement
from host.tuning.runners.connection import BoardAccess, DeviceConnection
from host.tuning.runners.device_runner import DeviceRunner
from host.tuning.runners.reconnect import ReconnectPolicy
from host.tuning.runners.runner import Outcome, Program
from host.tuning.tasks import TuningTask
from tests.unit.tuning.simulated import candidate, dense_space, measured, profile

HANG = RuntimeError("it answers only when it is cut off")


@dataclass
class FakeDevice:
    """A device whose measurements follow a script of times and errors."""

    script: list[float | Exception]
    closed: int = 0
    sessions: list[FakeSession] = field(default_factory=list)
    cut: threading.Event = field(default_factory=threading.Event)

    @property
    def agent(self) -> FakeDevice:
        return self

    def stop(self) -> None:
        self.cut.set()

    def open_session(self, engine: str, threads: int, time_limit_s: float) -> FakeSession:
        self.sessions.append(FakeSession(self))
        return self.sessions[-1]

    def replace(self, lost: FakeDevice) -> None:
        assert lost is not self and lost.closed

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
        if step is HANG:
            self.device.cut.wait()
            raise GONE
        if isinstance(step, Exception):
            raise step
        return measured(step)


@pytest.fixture(autouse=True)
def fake_kernel_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "host.measure.kernels.KernelRunner", lambda session: FakeRunner(session.device), raising=True
    )


TASK = TuningTask(dense_space(), 1e-5)
GONE = DeviceError("desk: the device agent went away; connect again")
AT_ONCE = ReconnectPolicy(limit_s=0.0)


def connection(device: FakeDevice, others: Sequence[FakeDevice | Exception]) -> DeviceConnection:
    left = list(others)

    def connect() -> FakeDevice:
        found = left.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    return DeviceConnection(BoardAccess("desk", profile(), connect, device, keep=True))  # type: ignore[arg-type]


def runner(
    one: DeviceConnection,
    folder: Path,
    notes: list[str] | None = None,
    policy: ReconnectPolicy | None = None,
) -> DeviceRunner:
    heard = notes if notes is not None else []
    return DeviceRunner(
        [one], profile(), folder, heard.append, policy=policy or ReconnectPolicy(first_pause_s=0.0)
    )


def programs(folder: Path, count: int = 1) -> list[Program]:
    made = []
    for number in range(count):
        path = folder / f"k{number}.so"
        path.write_bytes(b"elf")
        made.append(Program(TASK, candidate(TASK.key, number, "gensor"), path))
    return made


def results(outcomes: Iterable[Outcome]) -> list[float | str]:
    return [one.measurement.median_s if one.measurement else one.failure for one in outcomes]


def always() -> bool:
    return True


def test_a_device_that_comes_back_measures_on(tmp_path: Path) -> None:
    first, second = FakeDevice([1.0, GONE]), FakeDevice([2.0, 3.0])
    notes: list[str] = []
    one = connection(first, [DeviceError("no route"), second])
    with runner(one, tmp_path, notes) as here:
        assert results(here.run(programs(tmp_path, 3), always)) == [1.0, 2.0, 3.0]
    assert one.device is second, "the caller finds the connection that it is left with"
    assert (first.closed, second.closed) == (1, 0), "and closes it"
    assert (len(first.sessions), len(second.sessions)) == (1, 1), "one session serves all programs"
    assert notes == [f"{GONE}; trying to reach it again", "desk is back"]
    assert not list(tmp_path.glob("*.so"))


def test_a_device_that_stays_away_ends_with_what_to_do(tmp_path: Path) -> None:
    one = connection(FakeDevice([GONE]), [DeviceError("desk: no route to host")] * 2)
    with (
        runner(one, tmp_path, policy=AT_ONCE) as here,
        pytest.raises(DeviceError, match=r"desk does not come back .*no route.*run the same command again"),
    ):
        list(here.run(programs(tmp_path), always))


def test_a_device_that_restarts_is_waited_for_with_growing_pauses() -> None:
    policy = ReconnectPolicy(first_pause_s=1.0, longest_pause_s=30.0)
    assert list(itertools.islice(policy.pauses(), 8)) == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    # A board takes a minute to start.
    assert policy.limit_s >= 180.0


def test_a_program_that_takes_the_device_away_is_at_fault(tmp_path: Path) -> None:
    one = connection(FakeDevice([GONE]), [FakeDevice([GONE]), FakeDevice([4.0])])
    with runner(one, tmp_path) as here:
        fault, other = results(here.run(programs(tmp_path, 2), always))
    assert "went away 2 times" in str(fault)
    assert other == 4.0


def test_a_program_that_crashes_costs_only_itself(tmp_path: Path) -> None:
    device = FakeDevice([SessionLost("kernel dense:\n crashed"), 1.0])
    with runner(connection(device, []), tmp_path) as here:
        assert results(here.run(programs(tmp_path, 2), always)) == ["kernel dense: crashed", 1.0]


def test_what_was_not_built_comes_back_as_it_is_and_nothing_begins_when_time_is_up(tmp_path: Path) -> None:
    device = FakeDevice([1.0])
    [built, later] = programs(tmp_path, 2)
    unbuilt = Program(TASK, candidate(TASK.key, 9, "gensor"), None, "does not compile")
    asked: list[None] = []

    def twice() -> bool:
        asked.append(None)
        return len(asked) <= 2

    with runner(connection(device, []), tmp_path) as here:
        assert results(here.run([unbuilt, built, later], twice)) == ["does not compile", 1.0]


def test_a_device_that_another_host_has_is_no_fault_of_a_program(tmp_path: Path) -> None:
    busy = DeviceBusy("desk: the device is in use by ann@lab for 3 s")
    # At the start that is for the user to know.
    with (
        runner(connection(FakeDevice([busy]), []), tmp_path) as here,
        pytest.raises(DeviceBusy, match="in use by ann@lab"),
    ):
        list(here.run(programs(tmp_path), always))
    # After a loss it is the connection that was lost, or somebody who was faster: it is waited for.
    others = [FakeDevice([busy]), FakeDevice([busy]), FakeDevice([busy]), FakeDevice([2.0])]
    with runner(connection(FakeDevice([1.0, GONE]), others), tmp_path) as here:
        assert results(here.run(programs(tmp_path, 2), always)) == [1.0, 2.0]


def test_a_device_that_hangs_is_cut_off(tmp_path: Path) -> None:
    first, second = FakeDevice([HANG]), FakeDevice([2.0])
    policy = ReconnectPolicy(first_pause_s=0.0, answer_limit_s=0.05)
    with runner(connection(first, [second]), tmp_path, policy=policy) as here:
        assert results(here.run(programs(tmp_path), always)) == [2.0]


def test_programs_are_built_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with runner(connection(FakeDevice([]), []), tmp_path) as here:
        made = Gensor().propose(TASK.space, profile(), (), 2, 0)
        paths = [here.build(TASK, one) for one in made]
    assert len({path.read_bytes() for path in paths}) == 2
    assert all(path.read_bytes().startswith(b"\x7fELF") for path in paths)
