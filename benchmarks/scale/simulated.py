"""A tuning whose boards are simulated: everything but the boards is the product's.

    python -m benchmarks.scale.simulated --engine ray://HEAD --boards sim-0,sim-1 --records URL ...

Tasks are products of matrices, programs are proposed and compiled as those of a model, records go to a
database, and a board is an actor that waits as long as a measurement takes. Each board writes down what it
measured and when, so that whoever started this can compare that with the records.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from host.execution import Actor, Engine, open_engine
from host.gensor import Gensor
from host.model import DeviceProfile, Energy, Measurement, Task
from host.records import RecordOrigin, RecordStore
from host.schedules import space_for
from host.tuning.budget import Budget
from host.tuning.loop import tune
from host.tuning.options import TuneOptions
from host.tuning.proposers.random_sampling import RandomSampling
from host.tuning.runners.connection import Arguments, BoardAccess
from host.tuning.runners.device_runner import DeviceRunner
from host.tuning.runners.hosted import HostedConnection
from host.tuning.runners.reconnect import ReconnectPolicy
from host.tuning.tasks import TuningTask
from targets import board_for, declared

TUNING = "scale"
_TASKS = 8
# What measurements take of the mean, one after the other; each board begins elsewhere. Boards that began
# together then do not end together, as those whose programs differ do not, and all have the same rate.
_PARTS = (0.92, 1.2, 0.84, 1.04, 1.16, 0.8, 1.08, 0.96, 1.12, 0.88)


class SimulatedBoard:
    """The actor's object of a board that takes its time for a measurement, and no processor.

    Args:
        name: of the board.
        number: of the board.
        seconds: that a measurement takes in the mean; one takes up to a fifth more or less.
        journal: folder where the board writes down what it measures.
    """

    def __init__(self, name: str, number: int, seconds: float, journal: Path) -> None:
        self.name = name
        self._seconds = itertools.cycle(
            [seconds * _PARTS[(number + k) % len(_PARTS)] for k in range(len(_PARTS))]
        )
        self._journal = journal / f"{name}.jsonl"
        self._measuring = threading.Lock()

    def connect(self) -> None:
        """Nothing to do: the board is simulated in this process."""

    def use(self, number: int, profile: DeviceProfile) -> None:
        """Nothing to do: the times do not depend on the profile."""

    def measure_kernel(self, number: int, kernel: str, arguments: Arguments, library: bytes) -> Measurement:
        """Take the time of a measurement, and give one that follows from the library."""
        digest = hashlib.sha256(library).hexdigest()
        with self._measuring:
            begin = time.time()
            time.sleep(next(self._seconds))
            end = time.time()
        with self._journal.open("a") as file:
            file.write(json.dumps({"library": digest, "begin": begin, "end": end}) + "\n")
        seconds = 1e-4 * (1.0 + int(digest[:8], 16) / 2**32)
        return Measurement((seconds,) * 3, Energy("unavailable", None, None, "simulated"), {}, {}, 1)


def profile() -> DeviceProfile:
    """One core of an AVX2 board."""
    board = board_for(declared()["x86_64-v3"])
    assert board is not None
    return DeviceProfile("simulated", board, board.hardware, 1)


def tasks(hardware: Any) -> list[TuningTask]:
    """Matrix products of several sizes."""
    found = []
    for number in range(_TASKS):
        rows, depth, columns = 32, 64, 64 + 16 * number
        name = f"product_{columns}"
        work = 2.0 * rows * depth * columns
        digest = hashlib.sha256(name.encode()).hexdigest()
        space = space_for(Task(name, _product(name, rows, depth, columns), 1, digest, work), hardware)
        assert space is not None, f"no rule makes programs for {name}"
        found.append(TuningTask(space, work / 1e10))
    return found


def _product(name: str, rows: int, depth: int, columns: int) -> Any:
    from tvm import te

    x = te.placeholder((rows, depth), "float32", "x")
    w = te.placeholder((depth, columns), "float32", "w")
    k = te.reduce_axis((0, depth), "k")
    y = te.compute((rows, columns), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="y")
    return te.create_prim_func([x, w, y]).with_attr("global_symbol", name).with_attr("tirx.noalias", True)


class Timed(HostedConnection):
    """Takes down when each measurement was called, and when its answer was here.

    Attributes:
        calls: both times, by the clock of the boards, by the digest of the program's library.
    """

    def __init__(self, access: BoardAccess, actor: Actor) -> None:
        super().__init__(access, actor)
        self.calls: dict[str, tuple[float, float]] = {}
        self._called: dict[str, float] = {}

    def measure(self, task: TuningTask, library: Path) -> Measurement:
        """See `BoardConnection.measure`."""
        digest = _digest(library)
        # It may have been called while the board measured another.
        called = self._called.pop(digest, time.time())
        found = super().measure(task, library)
        self.calls[digest] = called, time.time()
        return found

    def _begun(self, number: int, task: TuningTask, library: Path) -> Any:
        self._called[_digest(library)] = time.time()
        return super()._begun(number, task, library)


def _digest(library: Path) -> str:
    return hashlib.sha256(library.read_bytes()).hexdigest()


def connection(
    engine: Engine, name: str, number: int, seconds: float, journal: Path, device: DeviceProfile
) -> Timed:
    """To a simulated board, whose actor the engine makes where that board is."""
    actor = engine.actor(SimulatedBoard, name, number, seconds, journal, at=name)

    def connect() -> Any:
        actor.call("connect")
        agent = SimpleNamespace(number=1, stop=lambda: None)
        return SimpleNamespace(agent=agent, close=lambda: None, replace=lambda lost: None)

    return Timed(BoardAccess(name, device, connect), actor)


def run(options: argparse.Namespace, note: Callable[[str], None]) -> dict[str, Any]:
    """Tune, and say when measurements were called and answered."""
    device = profile()
    names = options.boards.split(",")
    engine = open_engine(options.engine)
    try:
        boards = [
            connection(engine, name, number, options.seconds, options.journal, device)
            for number, name in enumerate(names)
        ]
        listener = SimpleNamespace(progress=lambda progress: None, note=note)
        with TemporaryDirectory(prefix="edgetlm-") as folder, RecordStore(options.records) as store:
            runner = DeviceRunner(boards, device, Path(folder), note, (), ReconnectPolicy(), engine=engine)
            how = TuneOptions(
                TUNING,
                Budget(trials=options.trials, batch=max(8, 2 * len(names))),
                workers=engine.cores(),
                overlap=True,
                origin=RecordOrigin(command="benchmarks.scale", model="products"),
            )
            with runner:
                found = tune(
                    tasks(device.hardware),
                    device,
                    [RandomSampling(2), Gensor()],
                    runner,
                    store,
                    how,
                    listener=listener,
                )
        return {
            "trials": found.trials,
            "calls": {digest: times for board in boards for digest, times in board.calls.items()},
        }
    finally:
        engine.close()


def main() -> None:
    """Tune and print one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", required=True)
    parser.add_argument("--boards", required=True)
    parser.add_argument("--records", required=True)
    parser.add_argument("--trials", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--journal", type=Path, required=True)
    options = parser.parse_args()
    print(json.dumps(run(options, lambda text: print(f"note: {text}", flush=True))), flush=True)


if __name__ == "__main__":
    main()
