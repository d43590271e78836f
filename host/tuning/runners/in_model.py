"""Kernels measured inside of the model: many at once, with the caches as the model leaves them.

A job is some variants of the model, each with another program for many of its kernels, beside the model with
the reference programs. All of them run in turn, run by run, and every run times every kernel. What disturbs
the machine disturbs all variants alike, and only ever makes a run longer: the fastest fifth of the runs
counts. Times are relative to those of the reference program in the same job, so that the speed of the board
at the time cancels.
"""

from __future__ import annotations

import itertools
import math
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from host.errors import DeviceError, EngineError, MeasureError, SessionLost, one_line
from host.model import Candidate, Energy
from host.tuning.runners.connection import (
    LONGEST_RUNS_S,
    VARIANT_RUNS,
    BoardConnection,
    ReferenceModel,
)
from host.tuning.runners.method import divided_by
from host.tuning.runners.runner import Outcome, Program

if TYPE_CHECKING:
    import tvm

    from host.build import KernelObject, VariantLinker
    from host.measure.variants import VariantMeasurement, VariantTimes

# Variants of a job beside the reference: more of them run less often within the time of a job.
_MOST_VARIANTS = 6
# Of the kernels of a variant that is too slow, those that take so many times as long as the reference program
# are at fault.
_AT_FAULT = 2.0
# Seconds of a job in which windows of energy begin: the runs, these and the last window stay within the time
# that a board may take (`host.tuning.runners.reconnect`).
_WINDOWS_S = 60.0
# The share of the runs that counts.
_COUNTED = 0.2


class KernelsInModel:
    """Builds programs and measures them inside of the model; a `host.tuning.runners.method.MeasuringMethod`.

    Args:
        linker: of the model with its reference programs.
        model: the same model as a bundle, with inputs.
        library: of the same model; stays where it is.
        reference: reference program of each task, by workload hash.
        reference_s: recorded seconds of one call of reference programs, by the kernel's name; the first job
            gives those of the others.
        folder: for libraries.
    """

    def __init__(
        self,
        linker: VariantLinker,
        model: ReferenceModel,
        library: Path,
        reference: Mapping[str, Candidate],
        reference_s: Mapping[str, float],
        folder: Path,
    ) -> None:
        self._linker = linker
        self._model = model
        self._reference = dict(reference)
        self._reference_s = dict(reference_s)
        self._folder = folder
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._library = library

    def measures(self, kernel: str) -> bool:
        """Whether the model runs a kernel: views, for example, become no call."""
        return kernel in self._linker.kernels

    @property
    def target(self) -> tvm.target.Target:
        """The TVM target of the model's library, for which programs are compiled."""
        return self._linker.target

    @staticmethod
    def job_s(model_s: float) -> float:
        """Expected seconds of the runs of a job, where one of the model takes `model_s`."""
        return min(LONGEST_RUNS_S, VARIANT_RUNS * (1 + _MOST_VARIANTS) * model_s)

    def jobs(self, programs: Sequence[Program], boards: int) -> list[tuple[Program, ...]]:
        """See `MeasuringMethod.jobs`."""
        unbuilt = [(program,) for program in programs if program.built is None]
        variants = _variants([program for program in programs if program.built is not None])
        # Windows of energy come on top of the runs, and a job has a limit.
        most = 1 if any(program.task.energy for program in programs) else _MOST_VARIANTS
        share = min(most, math.ceil(len(variants) / boards)) or 1
        parts = [variants[begin : begin + share] for begin in range(0, len(variants), share)]
        return [*unbuilt, *(tuple(program for variant in part for program in variant) for part in parts)]

    def prepared(self, programs: Sequence[Program]) -> Sequence[Path]:
        """See `MeasuringMethod.prepared`: a library for each variant."""
        return [self._linked(variant) for variant in self._changed(programs)]

    def _changed(self, programs: Sequence[Program]) -> list[list[Program]]:
        """The variants that the changed programs of a job are divided into."""
        return _variants([one for one in programs if not self._is_reference(one)])

    def follow(self, connection: BoardConnection, programs: Sequence[Program]) -> None:
        """See `MeasuringMethod.follow`: whether a job is divided is known when the one before it is done."""

    def measure(
        self,
        connection: BoardConnection,
        programs: Sequence[Program],
        factor: float,
        prepared: Sequence[Path] | None = None,
    ) -> list[Outcome]:
        """See `MeasuringMethod.measure`; the reference programs show how fast the board is, not `factor`."""
        unchanged = [one for one in programs if self._is_reference(one)]
        variants = self._changed(programs)
        libraries = self.prepared(programs) if prepared is None else prepared
        try:
            found = connection.measure_variants(self._model, [self._library, *libraries])
        except (MeasureError, SessionLost):
            if len(programs) == 1:
                self._require_reference(connection)
            raise
        finally:
            for library in libraries:
                library.unlink(missing_ok=True)
        now_s = {name: _seconds(times) for name, times in found.variants[0].times_s.items()}
        outcomes: list[Outcome] = []
        for variant, times in zip((unchanged, *variants), found.variants, strict=True):
            at_fault = _at_fault(variant, times, now_s) if times.slow else variant
            outcomes += [self._outcome(program, times, found, now_s, connection.name) for program in at_fault]
        return self._with_energy(connection, outcomes)

    def _with_energy(self, connection: BoardConnection, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """The outcomes with the energy of their kernels, each called in a loop by itself, where it is wanted.

        Those of the longest kernels come first; when the time for windows is over, or the board goes away in
        one, the rest have none. The times were measured before: they are kept.
        """
        begin, found = time.monotonic(), dict(enumerate(outcomes))
        wanted = [
            (number, measurement)
            for number, one in found.items()
            if (measurement := one.measurement) is not None
            and measurement.trusted
            and one.program.task.energy
        ]
        for number, measurement in sorted(
            wanted, key=lambda pair: -pair[1].median_s * found[pair[0]].program.task.weight
        ):
            if time.monotonic() - begin > _WINDOWS_S:
                break
            try:
                energy = self._energy(connection, found[number].program)
            except DeviceError:
                # The next job connects again, and says so where the board does not come back.
                connection.drop()
                break
            found[number] = replace(found[number], measurement=replace(measurement, energy=energy))
        return [found[number] for number in range(len(outcomes))]

    def _energy(self, connection: BoardConnection, program: Program) -> Energy:
        assert program.built is not None and not isinstance(program.built, Path)
        path = self._folder / f"alone-{next(self._numbers)}.so"
        library = self._linker.link_alone(program.task.name, program.built, path)
        try:
            alone = connection.measure_energy(program.task, library, program.candidate)
        except (MeasureError, SessionLost) as error:
            # It runs in the model: its times count.
            return Energy("unavailable", None, None, one_line(error), reason=one_line(error))
        finally:
            library.unlink(missing_ok=True)
        if not alone.trusted:
            return Energy("unavailable", None, None, "the board throttled", reason="the board throttled")
        return alone.energy

    def _require_reference(self, connection: BoardConnection) -> None:
        """Refuse to go on where the model with its reference programs cannot be measured either.

        A failed program is never tried again: none is blamed for what is wrong with the model.

        Raises:
            EngineError: it cannot be measured.
        """
        try:
            connection.measure_variants(self._model, [self._library])
        except (MeasureError, SessionLost) as error:
            raise EngineError(
                f"{connection.name} cannot measure kernels inside of the model ({error}); deploy without "
                "--trials and --budget"
            ) from error

    def _is_reference(self, program: Program) -> bool:
        reference = self._reference.get(program.task.key)
        return reference is not None and reference.decisions == program.candidate.decisions

    def _linked(self, variant: Sequence[Program]) -> Path:
        objects: dict[str, KernelObject] = {}
        for program in variant:
            assert program.built is not None and not isinstance(program.built, Path)
            objects[program.task.name] = program.built
        return self._linker.link(objects, self._folder / f"variant-{next(self._numbers)}.so")

    def _outcome(
        self,
        program: Program,
        times: VariantTimes,
        found: VariantMeasurement,
        now_s: Mapping[str, float],
        board: str,
    ) -> Outcome:
        name = program.task.name
        if name not in times.times_s or name not in now_s:
            return Outcome(program, None, f"kernel {name} does not run in the model", board)
        with self._lock:
            factor = now_s[name] / self._reference_s.setdefault(name, now_s[name])
        measurement = replace(found.state, times_s=counted(times.times_s[name]))
        return Outcome(program, divided_by(measurement, factor), "", board, factor)


def counted(times_s: Sequence[float]) -> tuple[float, ...]:
    """The fastest fifth of the times, at least one: what else runs on the device only makes a run longer."""
    return tuple(sorted(times_s)[: max(1, math.ceil(_COUNTED * len(times_s)))])


def _seconds(times_s: Sequence[float]) -> float:
    return statistics.median(counted(times_s))


def _variants(programs: Sequence[Program]) -> list[list[Program]]:
    """As few variants of the model as have one program for each task."""
    variants: list[list[Program]] = []
    tasks: list[set[str]] = []
    for program in programs:
        key = program.task.key
        index = next((number for number, taken in enumerate(tasks) if key not in taken), len(tasks))
        if index == len(tasks):
            variants.append([])
            tasks.append(set())
        variants[index].append(program)
        tasks[index].add(key)
    return variants


def _at_fault(
    variant: Sequence[Program], times: VariantTimes, now_s: Mapping[str, float]
) -> Sequence[Program]:
    """The programs that make a variant too slow: at least one."""

    def slowness(program: Program) -> float:
        name = program.task.name
        known = name in times.times_s and name in now_s
        return _seconds(times.times_s[name]) / now_s[name] if known else math.inf

    return [one for one in variant if slowness(one) >= _AT_FAULT] or [max(variant, key=slowness)]
