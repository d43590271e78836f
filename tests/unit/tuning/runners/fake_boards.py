"""Boards that do what a test says, and a pool of workers for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from host.errors import DeviceError
from host.model import Measurement
from host.tuning.runners.pool import WorkerPool
from host.tuning.runners.reconnect import ReconnectPolicy
from host.tuning.runners.runner import Outcome, Program
from host.tuning.tasks import TuningTask
from tests.unit.tuning.simulated import candidate, dense_space, measured

TASK = TuningTask(dense_space(), 1e-5)
QUICK = ReconnectPolicy(limit_s=5.0, first_pause_s=0.001, longest_pause_s=0.01, answer_limit_s=20.0)
SECOND = 1.0


class Away(DeviceError):
    """A board is gone."""


@dataclass
class FakeBoard:
    """A board that does to each program what `behave` says.

    Attributes:
        slowness: of every time that it measures.
        away: attempts to connect that fail before one succeeds.
        times: libraries that it has measured to the end, references among them.
        named: libraries that were named as the next ones.
        withdrawn: how often a name was taken back.
    """

    name: str
    behave: Callable[[FakeBoard, Path], None] = lambda board, library: None
    slowness: float = 1.0
    away: int = 0
    times: list[Path] = field(default_factory=list)
    named: list[Path] = field(default_factory=list)
    withdrawn: int = 0
    connected: bool = False
    connections: int = 0
    closed: bool = False
    aborted: threading.Event = field(default_factory=threading.Event)

    def connect(self) -> None:
        if self.away:
            self.away -= 1
            raise Away(f"{self.name}: no route to host")
        self.connections += not self.connected
        self.connected = True

    def measure(self, task: TuningTask, library: Path) -> Measurement:
        assert self.connected, "nobody measures on a board that is not there"
        if not library.name.startswith("reference"):
            self.behave(self, library)
        self.times.append(library)
        return measured(SECOND * self.slowness)

    def follow(self, task: TuningTask, library: Path) -> None:
        self.named.append(library)

    def withdraw(self) -> None:
        self.withdrawn += 1

    def lose(self) -> None:
        self.connected = False
        raise Away(f"{self.name}: the device agent went away")

    def drop(self) -> str:
        self.connected = False
        return ""

    def abort(self) -> None:
        self.aborted.set()

    def close(self) -> None:
        self.closed = True

    @property
    def programs(self) -> list[Path]:
        return [one for one in self.times if not one.name.startswith("reference")]


def made_programs(folder: Path, count: int) -> list[Program]:
    made = []
    folder.mkdir(exist_ok=True)
    for number in range(count):
        path = folder / f"program{number}.so"
        path.write_bytes(b"elf")
        made.append(Program(TASK, candidate(TASK.key, number, "gensor"), path))
    return made


def pool(
    boards: list[FakeBoard], folder: Path, notes: list[str] | None = None, **others: object
) -> WorkerPool:
    heard = notes if notes is not None else []
    references = [(TASK, folder / "reference0.so"), (TASK, folder / "reference1.so")]
    policy = others.pop("policy", QUICK)
    return WorkerPool(boards, heard.append, policy, references, **others)  # type: ignore[arg-type]


def run(workers: WorkerPool, wanted: list[Program], more: Callable[[], bool] = lambda: True) -> list[Outcome]:
    with workers:
        return list(workers.run(wanted, more))


def numbers(outcomes: list[Outcome]) -> list[int]:
    return sorted(int(one.program.candidate.value("rows")) for one in outcomes)  # type: ignore[call-overload]
