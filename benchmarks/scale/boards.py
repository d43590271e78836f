"""Simulated boards on several hosts of this machine, and what is left when a part of it is killed.

The same tuning runs on one board and on all of them; what is killed is killed in the middle of the second.

    alone_per_s     measurements a second of one board
    speedup         measurements a second of all boards over those of one
    idle_share      of the boards' time between the first and the last begin of a measurement
    overhead_ms     of a measurement: median from its end to the begin of the same board's next one
    answer_ms       median from call to answer without the measurement, and without the time for which the
                    program waits for its board, which measures another; what `overhead_ms` was in the first
                    version of the results, when a board had one program at a time
    lost            records of before the kill that are not there at the end, and missing measurements; what
                    is both counts once
    surplus         programs on record beyond those that were asked for
    duplicated      programs with more than one record
    measured_again  programs that a board had measured to the end before, of which nobody heard
    recovery_s      from the kill until every board has ended a measurement that began after it; null where
                    a board has none

Whatever is killed is started again at once, as systemd does on a real host. Where the command itself ended,
the same command is given again.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.scale.simulated import profile
from host.files import write_whole
from host.records import RecordStore
from host.records.store import profile_data
from tests.ray_cluster import RayCluster
from tests.servers.postgres import Server

PARTS = ("worker", "board", "board-host", "head", "database")
# Share of the measurements after which something is killed.
_MIDDLE = 0.3
_LIMIT_S = 900.0


@dataclass(frozen=True)
class Trial:
    """A tuning of simulated boards.

    Attributes:
        nodes: hosts of the cluster, its head among them.
        boards: spread over the hosts.
        trials: measurements of each board.
        seconds: that a measurement takes.
        kill: one of `PARTS`; None for nothing.
    """

    nodes: int
    boards: int
    trials: int
    seconds: float
    kill: str | None = None

    def figures(self, alone: float | None = None) -> dict[str, Any]:
        """Run the tuning on one board, then on all of them.

        Args:
            alone: measurements a second of one board; None measures them.
        """
        names = [f"sim-{number}" for number in range(self.boards)]
        with TemporaryDirectory(prefix="edgetlm-") as text, ExitStack() as ending:
            folder = Path(text)
            server = Server()
            ending.callback(server.remove)
            cluster = RayCluster(folder, [names[number :: self.nodes] for number in range(self.nodes)])
            ending.callback(cluster.close)
            if alone is None:
                one = Run(self, cluster, server, folder / "alone", names[:1])
                one.whole()
                alone = one.rate()
            every = Run(self, cluster, server, folder / "every", names)
            every.whole(self.kill)
            return {
                "nodes": self.nodes,
                "boards": self.boards,
                "kill": self.kill,
                "measurement_s": self.seconds,
                "trials": self.trials * self.boards,
                "alone_per_s": alone,
                "speedup": every.rate() / alone,
                "idle_share": every.idle_share(),
                **every.overhead(),
                "lost": every.lost,
                "surplus": every.surplus,
                "duplicated": every.duplicated,
                "measured_again": every.measured_again,
                "recovery_s": every.recovery_s,
                "commands": every.commands,
                "notes": every.notes,
            }


def figures_of_each_part(trial: Trial, kept: Path | None = None) -> dict[str, Any]:
    """The figures without a kill, then those with each part killed, on a new cluster each time.

    Args:
        trial: how.
        kept: file of the runs that are done, a line each, written after each of them; those of the same
            trial are not made again. None keeps none.
    """
    done = _kept_runs(kept, trial) if kept else {}
    for part in (None, *PARTS):
        if part in done:
            continue
        print(f"{part or 'nothing'} is killed next", file=sys.stderr, flush=True)
        alone = done[None]["alone_per_s"] if part else None
        done[part] = replace(trial, kill=part).figures(alone)
        if kept:
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_whole(kept, "".join(f"{json.dumps(run)}\n" for run in done.values()).encode())
    return {"runs": [done[part] for part in (None, *PARTS)]}


def _kept_runs(kept: Path, trial: Trial) -> dict[str | None, dict[str, Any]]:
    """The runs of a trial, by the part that was killed."""
    runs = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    same = {
        "nodes": trial.nodes,
        "boards": trial.boards,
        "measurement_s": trial.seconds,
        "trials": trial.trials * trial.boards,
    }
    return {run["kill"]: run for run in runs if all(run[name] == value for name, value in same.items())}


class Run:
    """One tuning, until all its measurements are recorded.

    Args:
        trial: how.
        cluster: whose hosts reach the boards.
        server: of the records.
        folder: for what the boards write down; it is made.
        names: of the boards.

    Attributes:
        said: by the command.
        notes: of the command.
        commands: how often it was given.
        lost, surplus, duplicated, measured_again, recovery_s: see the docstring of the module.
    """

    def __init__(
        self, trial: Trial, cluster: RayCluster, server: Server, folder: Path, names: Sequence[str]
    ) -> None:
        folder.mkdir()
        self._trial = trial
        self._cluster = cluster
        self._server = server
        self._folder = folder
        self._names = names
        self._trials = trial.trials * len(names)
        self._records = server.url(server.database())
        self.said: Mapping[str, Any] = {}
        self.notes: list[str] = []
        self.commands = self.lost = self.surplus = self.duplicated = self.measured_again = 0
        self.recovery_s: float | None = None

    def whole(self, kill: str | None = None) -> None:
        """Tune to the end, whatever is killed meanwhile."""
        before: dict[str, str] = {}
        killed = None
        until = time.monotonic() + _LIMIT_S
        command = self._begun()
        while True:
            if kill is not None and killed is None and len(self.journal()) >= _MIDDLE * self._trials:
                before = self._programs()
                killed = time.time()
                self._kill(kill)
            if command.poll() is not None:
                if self._heard(command):
                    break
                command = self._begun()
            if time.monotonic() > until:
                command.kill()
                raise RuntimeError(f"the tuning does not end: {self.notes[-5:]}")
            time.sleep(0.05)
        if kill is not None and killed is None:
            raise RuntimeError(f"the tuning ended before {kill} was killed: give it more trials")
        found = self._programs()
        self.lost, self.surplus = lost_and_surplus(before, found, self._trials)
        self.duplicated = sum(count - 1 for count in Counter(found.values()).values())
        again = Counter(one["library"] for one in self.journal())
        self.measured_again = sum(count - 1 for count in again.values())
        if killed is not None:
            self.recovery_s = recovery_s(self.journal(), self._names, killed)

    def _begun(self) -> subprocess.Popen[bytes]:
        self.commands += 1
        command = [sys.executable, "-m", "benchmarks.scale.simulated", "--engine", self._cluster.engine]
        command += ["--boards", ",".join(self._names), "--records", self._records]
        command += ["--trials", str(self._trials), "--seconds", str(self._trial.seconds)]
        command += ["--journal", str(self._folder)]
        with (self._folder / f"said-{self.commands}").open("wb") as said:
            return subprocess.Popen(command, stdout=said, stderr=said, env=self._cluster.environment)

    def _heard(self, command: subprocess.Popen[bytes]) -> bool:
        """What a command that has ended has said; whether it came to its end."""
        lines = (self._folder / f"said-{self.commands}").read_text(errors="replace").splitlines()
        self.notes += [line.removeprefix("note: ") for line in lines if line.startswith("note: ")]
        if command.returncode == 0:
            self.said = json.loads(lines[-1])
            return True
        self.notes.append(f"the command ended with {command.returncode}: {lines[-1] if lines else ''}")
        return False

    def _kill(self, part: str) -> None:
        cluster = self._cluster
        if part == "database":
            self._server.kill()
            time.sleep(1.0)
            self._server.start()
        elif part in ("worker", "board"):
            # One that builds at the moment, else one that did and is kept for the next job.
            titles = ("ray::run_job", "ray::IDLE") if part == "worker" else ("ray::Hosted",)
            until = time.monotonic() + 60.0
            while not any(cluster.kill_one(title) for title in titles):
                if time.monotonic() > until:
                    raise RuntimeError(f"no {part} was found to kill")
        elif part == "board-host":
            cluster.kill(1)
            cluster.start(1)
        else:
            cluster.kill(0)
            # Its hosts are those of a cluster that is no more.
            for number in range(1, self._trial.nodes):
                cluster.kill(number)
            cluster.start(*range(self._trial.nodes))

    def journal(self) -> list[dict[str, Any]]:
        """What the boards have measured to the end, in order."""
        found = []
        for path in sorted(self._folder.glob("*.jsonl")):
            # The last line may be of a board that is writing, or was killed then.
            lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
            found += [{**json.loads(line), "board": path.stem} for line in lines]
        return sorted(found, key=lambda one: float(one["begin"]))

    def rate(self) -> float:
        """Measurements a second, between the first one's begin and the last one's end."""
        return rate(self.journal())

    def idle_share(self) -> float:
        """Of the boards' time between the first and the last begin of a measurement."""
        entries = self.journal()
        first, last = float(entries[0]["begin"]), float(entries[-1]["begin"])
        busy = sum(min(float(one["end"]), last) - min(float(one["begin"]), last) for one in entries)
        return 1.0 - busy / (len(self._names) * (last - first))

    def overhead(self) -> dict[str, float | None]:
        """`overhead_ms` and `answer_ms`: see the docstring of the module."""
        return overhead(self.said["calls"], self.journal())

    def _programs(self) -> dict[str, str]:
        """The program of each record, by the record's key."""
        with RecordStore(self._records) as store:
            every = store.select(profile_data(profile()), failed=True)
            return {one.record_key: one.candidate_key for one in every}


def rate(journal: Sequence[Mapping[str, Any]]) -> float:
    """Measurements a second, from the first one's begin to the last one's end.

    Args:
        journal: what the boards have measured: `begin` and `end`, in seconds of one clock.
    """
    begin, end = min(float(one["begin"]) for one in journal), max(float(one["end"]) for one in journal)
    return len(journal) / (end - begin)


def overhead(
    calls: Mapping[str, Sequence[float]], journal: Sequence[Mapping[str, Any]]
) -> dict[str, float | None]:
    """Medians of what measurements cost beyond themselves, in ms; None where there is nothing to tell from.

    Args:
        calls: when each was called and its answer was here, by its library.
        journal: what the boards have measured: `board`, `library`, `begin` and `end`, in seconds of
            one clock.
    """
    by_board: dict[str, list[Mapping[str, Any]]] = {}
    for one in sorted(journal, key=lambda one: float(one["begin"])):
        by_board.setdefault(str(one["board"]), []).append(one)
    stood, answered = [], []
    for some in by_board.values():
        # When the board was free.
        free = -math.inf
        for one in some:
            if free > -math.inf:
                stood.append(one["begin"] - free)
            if one["library"] in calls:
                called, answer = calls[one["library"]]
                answered.append(answer - max(called, free) - (one["end"] - one["begin"]))
            free = one["end"]
    parts = {"overhead_ms": stood, "answer_ms": answered}
    return {name: 1e3 * statistics.median(some) if some else None for name, some in parts.items()}


def recovery_s(journal: Sequence[Mapping[str, Any]], names: Sequence[str], killed: float) -> float | None:
    """Seconds from a kill until every board has ended a measurement that began after it.

    Args:
        journal: what the boards have measured: `board`, `begin` and `end`, in seconds of one clock.
        names: of the boards.
        killed: when, by the same clock.

    Returns:
        None where a board measured nothing after the kill: its share of the trials was at an end.
    """
    ends: dict[str, float] = {}
    for one in journal:
        if one["begin"] > killed:
            board, end = str(one["board"]), float(one["end"])
            ends[board] = min(end, ends.get(board, end))
    if set(names) - set(ends):
        return None
    return max(ends[name] for name in names) - killed


def lost_and_surplus(before: Mapping[str, str], found: Mapping[str, str], trials: int) -> tuple[int, int]:
    """Records that are lost, and programs that nobody asked for.

    Args:
        before: the program of each record that was there at the kill, by the record's key.
        found: the same at the end.
        trials: programs that were to be measured.

    Returns:
        Records of before that are gone, and measurements that are missing beside these; programs on record
        beyond the trials. A second record of a program is in neither.
    """
    programs = set(found.values())
    gone = [program for key, program in before.items() if key not in found]
    # A program whose record is gone, and that nobody measured again, is one of those that are missing.
    known = len(set(gone) - programs)
    missing = max(0, trials - len(programs) - known)
    return len(gone) + missing, max(0, len(programs) - trials)
