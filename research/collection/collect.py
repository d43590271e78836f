"""Measures programs of many tasks, a library of many programs at a time; an interrupted run continues.

Building is most of the work: programs of one task are compiled in parallel, and timed when nothing compiles.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import tvm

from host.build import build_kernel_library
from host.errors import BuildError, MeasureError, ScheduleError, SessionLost
from host.importers import load
from host.lowering import lower
from host.lowering.bands.choice import ROWS_KIND
from host.measure.kernels import KernelRunner
from host.model import DeviceProfile
from host.schedules import DesignSpace, scheduled_function, space_for
from research.collection.dataset import MeasuredProgram, append_programs, read_programs
from research.collection.draw import Values, draw_programs
from research.evaluation.bench import Bench, arguments_of

# Programs of a sweep over one task; a sweep with fewer left than this share of it is taken as complete.
SWEEP, _NEARLY = 24, 0.8
# Medians of short passes, in rounds over all programs: other work that slows a round down spares another.
ROUNDS, _SAMPLES, _PASS_S = 4, 5, 0.06


@dataclass(frozen=True, eq=False)
class CollectedTask:
    """A task to measure programs of.

    Attributes:
        model: where it is from.
        space: its design space.
        weight: calls in one run of the model.
    """

    model: str
    space: DesignSpace
    weight: int = 1


def tasks_in(
    models: Iterable[Path], profile: DeviceProfile, in_bands: bool = False
) -> dict[str, CollectedTask]:
    """The tasks with decisions in some model files, by workload hash, each once.

    Args:
        models: the files.
        profile: of the board.
        in_bands: whether the tasks of the chains are among them that a plan may compute in bands of rows, in
            the largest ones.
    """
    found: dict[str, CollectedTask] = {}
    for path in models:
        model = load(path, golden_cases=1)
        tasks = list((made := lower(model, profile.board)).tasks)
        if in_bands:
            decisions = {site.name: site.options[-1] for site in made.sites if site.kind == ROWS_KIND}
            tasks += lower(model, profile.board, decisions=decisions).tasks
        for task in tasks:
            if task.workload_hash not in found:
                try:
                    space = space_for(task, profile.hardware, profile.threads)
                except ScheduleError:
                    # No rule matches it: it gets a default schedule, which has no decisions.
                    continue
                if space is not None and space.decisions:
                    found[task.workload_hash] = CollectedTask(path.stem, space, task.weight)
    return found


class Timer(Protocol):
    """Times programs of one task.

    Attributes:
        rounds: times of each program that does not fail.
    """

    rounds: int

    def times(
        self, space: DesignSpace, functions: Mapping[str, tvm.tirx.PrimFunc], note: Callable[[str], None]
    ) -> Mapping[str, Sequence[float]]:
        """Seconds of each program in each round; fewer rounds of those that fail, of which a line is noted.

        Args:
            space: of the task.
            functions: scheduled, by name.
            note: receives the lines.
        """


class Collector:
    """Adds measured programs to a file.

    Args:
        timer: of the programs.
        profile: of the device.
        tasks: by workload hash.
        path: of the file.
        note: receives a line about each program that fails.
    """

    def __init__(
        self,
        timer: Timer,
        profile: DeviceProfile,
        tasks: Mapping[str, CollectedTask],
        path: Path,
        note: Callable[[str], None],
    ) -> None:
        self._timer = timer
        self._profile = profile
        self._tasks = tasks
        self._path = path
        self._note = note
        self._known: dict[str, list[Values]] = defaultdict(list)
        for program in read_programs(path):
            self._known[program.task].append(program.decisions)
        self.measured = 0

    def run(self, sweeps: int, until: float) -> None:
        """Sweep over all tasks, in the order of their hashes, so that any part of a sweep is a fair sample.

        Args:
            sweeps: how often.
            until: `time.monotonic()` at which no further task is begun.
        """
        for sweep in range(sweeps):
            for key in sorted(self._tasks):
                if time.monotonic() >= until:
                    return
                if len(self._known[key]) < (sweep + _NEARLY) * SWEEP:
                    self._collect(self._tasks[key], sweep)

    def _collect(self, task: CollectedTask, sweep: int) -> None:
        space = task.space
        key = space.task.workload_hash
        drawn = draw_programs(space, self._profile, sweep, SWEEP, self._known[key])
        # The first program of the first sweep is the one that is constructed without measuring.
        first = drawn[0][0] if sweep == 0 and drawn else None
        measured = timed_programs(self._timer, task, space, drawn, first, self._note)
        append_programs(self._path, measured)
        self._known[key] += [values for values, _ in drawn]
        self.measured += len(measured)


def timed_programs(
    timer: Timer,
    task: CollectedTask,
    space: DesignSpace,
    drawn: Sequence[tuple[Values, str]],
    first: Values | None,
    note: Callable[[str], None],
) -> list[MeasuredProgram]:
    """Time programs of a task; those that fail are noted and left out.

    Args:
        timer: of the programs.
        task: where they are from.
        space: of the programs, for the board of the timer.
        drawn: values of each program, and who proposed it.
        first: values of the one that is constructed without measuring; None if it is not among them.
        note: receives the lines.
    """
    functions, programs = {}, {}
    for number, (values, origin) in enumerate(drawn):
        try:
            made = scheduled_function(space.apply(space.candidate(values, origin)))
        except ScheduleError as error:
            note(f"{space.task.name}: {error}")
            continue
        functions[f"kernel_{number}"], programs[f"kernel_{number}"] = made, (values, origin)
    times = timer.times(space, functions, note) if functions else {}
    return [
        MeasuredProgram(
            task.model,
            space.task.workload_hash,
            space.task.name,
            space.rule.name,
            space.rule.version,
            values,
            origin,
            tuple(times[name]),
            task.weight,
            {part: float(f"{seconds:.5g}") for part, seconds in space.estimated(values).items()},
            values == first,
        )
        for name, (values, origin) in programs.items()
        if len(times.get(name, ())) == timer.rounds
    ]


class BenchTimer:
    """Times programs on a device.

    Args:
        bench: of the device.
    """

    rounds = ROUNDS

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def times(
        self, space: DesignSpace, functions: Mapping[str, tvm.tirx.PrimFunc], note: Callable[[str], None]
    ) -> Mapping[str, Sequence[float]]:
        """See `Timer`."""
        library = self._bench.folder / "programs.so"
        try:
            build_kernel_library(dict(functions), library, self._bench.target, self._bench.cache)
        except BuildError as error:
            note(f"{space.task.name}: {error}")
            return {}
        return timed_rounds(
            self._bench.runner,
            dict.fromkeys(functions, library),
            arguments_of(space.task),
            self._bench.profile,
            lambda line: note(f"{space.task.name}: {line}"),
        )


def timed_rounds(
    runner: KernelRunner,
    libraries: Mapping[str, Path],
    arguments: tuple[tuple[tuple[int, ...], str], ...],
    profile: DeviceProfile,
    note: Callable[[str], None],
) -> dict[str, list[float]]:
    """Seconds of each program in each round; one that fails is in no later round.

    Args:
        runner: of a session on the device.
        libraries: of the programs, by their names.
        arguments: shape and type of each.
        profile: of the device.
        note: receives a line about each program that fails.
    """
    times: dict[str, list[float]] = defaultdict(list)
    flush = 2 * profile.hardware.level("L2").size_bytes
    for done in range(ROUNDS):
        for name, library in libraries.items():
            if len(times[name]) < done:
                continue
            try:
                measurement = runner.measure(
                    library, name, arguments, repeat=_SAMPLES, max_s=_PASS_S, flush_bytes=flush
                )
            except (MeasureError, SessionLost) as error:
                note(str(error))
                continue
            times[name].append(measurement.median_s)
    return times
