"""Many simulated boards that one command uses: `python -m benchmarks.scale --many 1000`.

The queue of jobs, a thread for each board, its lease and the heartbeats, Ray's actors and calls, and the
records in PostgreSQL, one at a time and durably, are the product's. A board takes a time and no processor.
A program is the library of a product of matrices with a number at its end: building is the work of other
hosts. An actor is a process, so that each reaches many boards here, where it has one otherwise.

    jobs_per_s      measurements a second, recorded
    unfairness      greatest difference of a board's number of measurements from the mean, of the mean
    idle_share      of the boards' time
    command_cpu_ms  processor time of the command by measurement; of it, jobs_per_s_of_a_core follows
    head_cpu_ms     of Ray's head, all its processes but those of the boards, by measurement
    database_cpu_ms of the server by measurement
    wire_bytes      of all sockets of the loopback interface by measurement, and of the library of it
    memory          of command, head and server at moments: seconds, and resident bytes of each
    growth_share    of the command's memory, last tenth of the time against the tenth after a third of it
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from benchmarks.scale.rack import Rack
from benchmarks.scale.simulated import profile, tasks
from host.errors import MeasureError
from host.execution import Actor, Engine, LocalEngine, open_engine
from host.gensor import Gensor
from host.leases import Heartbeats, LeaseTable, Request, leased
from host.model import Candidate, Measurement
from host.records import Record, RecordOrigin, RecordStore, profile_data
from host.tuning.runners.building import ProgramBuilder
from host.tuning.runners.pool import WorkerPool
from host.tuning.runners.reconnect import ReconnectPolicy
from host.tuning.runners.runner import Program
from host.tuning.tasks import TuningTask
from tests.servers.postgres import Server

# Below the calls that an actor takes at once.
_BOARDS_OF_A_HOST = 40
_SAMPLE_S = 10.0
# Of the time: boards begin at different moments, and not all of them have begun before.
_BEGUN = 0.1


class RackBoard:
    """A `host.tuning.runners.connection.BoardConnection` to one of a rack.

    Args:
        name: of the board.
        rack: the actor that reaches it.
    """

    def __init__(self, name: str, rack: Actor) -> None:
        self.name = name
        self._rack = rack

    def connect(self) -> None:
        """Nothing to do: the rack is there."""

    def measure(self, task: TuningTask, library: Path) -> Measurement:
        """See `BoardConnection.measure`."""
        found: Measurement = self._rack.call("measure", task.name, library.read_bytes())
        return found

    def measure_energy(self, task: TuningTask, library: Path, program: Candidate) -> Measurement:
        """Refused: the boards of a rack have no sensor of power.

        Raises:
            MeasureError: always.
        """
        raise MeasureError(f"{self.name} has no power sensor; take a board that has one for its energy")

    def measure_variants(self, model: Any, libraries: Sequence[Path]) -> Any:
        """Refused: the boards of a rack measure kernels alone.

        Raises:
            MeasureError: always.
        """
        raise MeasureError(f"{self.name} measures kernels alone; take a board for variants of a model")

    def follow(self, task: TuningTask, library: Path) -> None:
        """Nothing to do: forty boards share an actor, which does not know whose turn is next."""

    def withdraw(self) -> None:
        """Nothing to do: see `follow`."""

    def drop(self) -> str:
        """Nothing to do: no connection can break."""
        return ""

    def abort(self) -> None:
        """A measurement ends by itself."""

    def close(self) -> None:
        """Nothing to do: the engine ends the racks."""


@dataclass(frozen=True)
class Fleet:
    """Boards that one command uses.

    Attributes:
        boards: number of them.
        seconds: that a measurement takes.
        minutes: for which they measure.
    """

    boards: int
    seconds: float
    minutes: float

    def figures(self) -> dict[str, Any]:
        """Measure for that time; see the docstring of the module."""
        with TemporaryDirectory(prefix="edgetlm-") as text, ExitStack() as ending:
            server = Server(durable=True)
            ending.callback(server.remove)
            engine = open_engine("ray", [f"rack-{number}" for number in range(self._racks)])
            ending.callback(engine.close)
            url = server.url(server.database())
            with RecordStore(url) as store, LeaseTable(url) as table, ExitStack() as leases:
                heartbeats = leases.enter_context(Heartbeats(table))
                boards = self._boards(engine)
                begin = time.monotonic()
                for board in boards:
                    request = Request(board.name, board.name, "benchmark", "scale", f"ticket {board.name}")
                    leases.enter_context(leased(table, request, heartbeats=heartbeats))
                leased_s = time.monotonic() - begin
                measured = _Measured(self, boards, store, Path(text), server)
                found = measured.figures()
                held = sum(one.health == "held" for one in table.status())
            return {**found, "leases_taken_s": leased_s, "leases_held": held}

    @property
    def _racks(self) -> int:
        return -(-self.boards // _BOARDS_OF_A_HOST)

    def _boards(self, engine: Engine) -> list[RackBoard]:
        racks = [engine.actor(Rack, self.seconds, at=f"rack-{number}") for number in range(self._racks)]
        return [RackBoard(f"sim-{number}", racks[number % self._racks]) for number in range(self.boards)]


class _Measured:
    """One run of the boards of a fleet."""

    def __init__(
        self, fleet: Fleet, boards: Sequence[RackBoard], store: RecordStore, folder: Path, server: Server
    ) -> None:
        self._fleet = fleet
        self._boards = boards
        self._store = store
        self._folder = folder
        self._server = server
        device = profile()
        self._device = profile_data(device)
        self._task = tasks(device.hardware)[0]
        self._candidate = Gensor().propose(self._task.space, device, (), 1, 0)[0]
        self._library = ProgramBuilder(LocalEngine()).library(self._task, self._candidate, device)
        self._number = 0

    def figures(self) -> dict[str, Any]:
        fleet = self._fleet
        begin = time.monotonic()
        until = begin + 60.0 * fleet.minutes
        steady = begin + _BEGUN * (until - begin)
        ends: list[tuple[float, str]] = []
        sampling = _Sampling(self._server)
        with WorkerPool(self._boards, print, ReconnectPolicy(), ahead=True) as pool, sampling:
            first = None
            for outcome in pool.run(self._more(), lambda: time.monotonic() < until, self._more):
                assert outcome.measurement is not None, outcome.failure
                origin = RecordOrigin(command="benchmarks.scale", model="products", device=outcome.board)
                record = Record(outcome.program.candidate, self._device, outcome.measurement, origin=origin)
                self._store.append([record])
                now = time.monotonic()
                if now >= steady:
                    first = first or sampling.now()
                    ends.append((now, outcome.board))
                if now >= until:
                    break
            last = sampling.now()
        assert first is not None
        return {**self._of(ends, first, last), "memory": sampling.memory, "growth_share": sampling.growth()}

    def _of(
        self, ends: Sequence[tuple[float, str]], first: Mapping[str, float], last: Mapping[str, float]
    ) -> dict[str, Any]:
        """Figures of the measurements between two moments."""
        count, spent_s = len(ends), last["time_s"] - first["time_s"]
        of_each = Counter(name for _, name in ends)
        numbers = [of_each[board.name] for board in self._boards]
        mean = statistics.fmean(numbers)
        command_ms = 1e3 * (last["command_cpu_s"] - first["command_cpu_s"]) / count
        return {
            "boards": self._fleet.boards,
            "measurement_s": self._fleet.seconds,
            "minutes": self._fleet.minutes,
            "boards_of_an_actor": _BOARDS_OF_A_HOST,
            "measured": count,
            "jobs_per_s": count / spent_s,
            "of_a_board": {"least": min(numbers), "mean": mean, "most": max(numbers)},
            "unfairness": max(max(numbers) - mean, mean - min(numbers)) / mean,
            "idle_share": 1.0 - count * self._fleet.seconds / (self._fleet.boards * spent_s),
            "command_cpu_ms": command_ms,
            "jobs_per_s_of_a_core": 1e3 / command_ms,
            "head_cpu_ms": 1e3 * (last["head_cpu_s"] - first["head_cpu_s"]) / count,
            "database_cpu_ms": 1e3 * (last["database_cpu_s"] - first["database_cpu_s"]) / count,
            "wire_bytes": (last["wire_bytes"] - first["wire_bytes"]) / count,
            "library_bytes": len(self._library) + 8,
        }

    def _more(self) -> list[Program]:
        """A program for each board, each another one."""
        programs = []
        for _ in self._boards:
            self._number += 1
            path = self._folder / f"{self._number}.so"
            path.write_bytes(self._library + self._number.to_bytes(8, "little"))
            decisions = (*self._candidate.decisions, ("number", self._number))
            programs.append(Program(self._task, replace(self._candidate, decisions=decisions), path))
        return programs


class _Sampling:
    """Looks at the processes from time to time; a context manager.

    Attributes:
        memory: seconds, and resident bytes of command, head and server.
    """

    def __init__(self, server: Server) -> None:
        self._server = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
        self._own = psutil.Process()
        self._begin = time.monotonic()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        # Processor time of server processes that have ended: one for each connection.
        self._known: dict[int, float] = {}
        self.memory: list[dict[str, float]] = []

    def now(self) -> dict[str, float]:
        """Seconds of processor time and bytes since the start."""
        own = self._own.cpu_times()
        head = sum(_cpu_s(one) for one in self._head())
        for one in self._database():
            self._known[one.pid] = _cpu_s(one)
        return {
            "time_s": time.monotonic(),
            "command_cpu_s": own.user + own.system,
            "head_cpu_s": head,
            "database_cpu_s": sum(self._known.values()),
            "wire_bytes": float(psutil.net_io_counters(pernic=True)["lo"].bytes_sent),
        }

    def growth(self) -> float:
        """Of the command's memory, against that after a third of the time."""
        resident = [one["command"] for one in self.memory]
        third, tenth = len(resident) // 3, max(1, len(resident) // 10)
        return statistics.fmean(resident[-tenth:]) / statistics.fmean(resident[third : third + tenth]) - 1.0

    def _look(self) -> None:
        while not self._ending.wait(_SAMPLE_S):
            found = {"seconds": time.monotonic() - self._begin, "command": float(self._own.memory_info().rss)}
            found["head"] = float(sum(_resident(one) for one in self._head()))
            found["threads"] = float(threading.active_count())
            self.memory.append(found)
            self.now()
            print(json.dumps(found), flush=True)

    def _head(self) -> list[psutil.Process]:
        """Ray's own processes: the head's, and the host's, without those of actors."""
        return [one for one in self._own.children(recursive=True) if _name(one) in ("gcs_server", "raylet")]

    def _database(self) -> list[psutil.Process]:
        main = psutil.Process(self._server)
        return [main, *main.children()]

    def __enter__(self) -> _Sampling:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""


def _cpu_s(process: psutil.Process) -> float:
    try:
        spent = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(spent.user + spent.system)


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0
