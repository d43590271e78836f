"""MetaSchedule's evolutionary search as a proposer of tunings: `sdk tune --method metaschedule`.

What it searches are the programs of this project's design spaces (`own_space`), so that its programs are
records like all others. The search and its cost model (XGBoost, random scores until it has learned from a
hundred programs) are the stock ones; the population is smaller.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tvm
from tvm.s_tir import meta_schedule as ms

from host.build import target_for
from host.errors import ScheduleError, one_line
from host.model import Candidate, DeviceProfile, Measurement
from host.schedules import DesignSpace
from research.baselines.own_space import OwnSpace, decisions_of, program_of
from research.metaschedule import FUNCTION, register_intrinsics, workload_module, xgboost_model

# The mutator is Python, and a task of a model has tens of trials: a quarter of the stock population.
_POPULATION = 128
# The stock search gives up where it finds fewer than 50 new programs; a small space has fewer to begin with.
_LEAST_NEW = 1
# How often the search goes on where it finds programs that were measured.
_ITERATIONS = 3


class MetaScheduleProposer:
    """Programs of MetaSchedule's evolutionary search; a `Proposer`.

    Before each request, the cost model learns from the measurements of the
    task that it does not know yet; what it has learned from other tasks stays, as in the stock search.

    Raises:
        MeasureError: XGBoost is not installed.
    """

    name = "metaschedule"

    def __init__(self) -> None:
        # Refused before anything is measured.
        self._model = xgboost_model(0, 1)
        self._seeded = False
        self._told: set[tuple[str, object]] = set()

    def propose(
        self,
        space: DesignSpace,
        profile: DeviceProfile,
        history: Sequence[tuple[Candidate, Measurement]],
        k: int,
        seed: int,
    ) -> list[Candidate]:
        """Up to `k` candidates that are not in the history, best first by the cost model.

        Raises:
            ScheduleError: the search fails, or the programs are for a GPU.
        """
        if space.hardware.gpu is not None:
            raise ScheduleError("MetaSchedule is given tasks of CPUs only; leave --processor gpu out")
        if not self._seeded:
            self._model, self._seeded = xgboost_model(seed, 1), True
        register_intrinsics(profile.board.architecture)
        module = workload_module(space.task.function, space.task.flops)
        # Until the cost model has enough programs, it draws its scores from NumPy's global generator.
        with _seeded(seed), _failures_of(space), target_for(profile.board):
            context = self._context(space, profile, module, seed)
            found = self._iteration(context, space, module, history, k)
        return [space.candidate(values, self.name, space.estimate_s(values)) for values in found[:k]]

    def _context(self, space: DesignSpace, profile: DeviceProfile, module: tvm.IRModule, seed: int) -> Any:
        logger = logging.getLogger("research.metaschedule.proposer")
        logger.setLevel(logging.WARNING)
        return ms.TuneContext(
            module,
            target=target_for(profile.board),
            space_generator=OwnSpace(space, seed, _POPULATION),
            search_strategy=ms.search_strategy.EvolutionarySearch(
                population_size=_POPULATION, init_min_unmeasured=_LEAST_NEW
            ),
            task_name=FUNCTION,
            rand_state=seed % (2**31 - 1) + 1,
            # The mutator is Python: threads of the search would wait for each other.
            num_threads=1,
            logger=logger,
        )

    def _iteration(
        self,
        context: Any,
        space: DesignSpace,
        module: tvm.IRModule,
        history: Sequence[tuple[Candidate, Measurement]],
        k: int,
    ) -> list[dict[str, int]]:
        """Decisions of new programs, best first."""
        database = ms.database.MemoryDatabase()
        workload = database.commit_workload(module)
        arguments = ms.arg_info.ArgInfo.from_prim_func(module[FUNCTION])
        new, results = [], []
        for candidate, measurement in history:
            values = {name: int(candidate.value(name)) for name, _ in candidate.decisions}
            schedule = program_of(space, values, module)
            seconds = [min(measurement.times_s)]
            database.commit_tuning_record(
                ms.database.TuningRecord(schedule.trace, workload, seconds, context.target, arguments)
            )
            key = (space.task.workload_hash, candidate.decisions)
            if key not in self._told:
                self._told.add(key)
                new.append(ms.MeasureCandidate(schedule, arguments))
                results.append(ms.runner.RunnerResult(seconds, None))
        if new:
            self._model.update(context, new, results)
        strategy = context.search_strategy
        strategy.pre_tuning(_ITERATIONS * k, k, context.generate_design_space(), database, self._model)
        known = {candidate.decisions for candidate, _ in history}
        found: list[dict[str, int]] = []
        for _ in range(_ITERATIONS):
            # The strategy leaves out what it chose itself, and not what the database has.
            chosen = strategy.generate_measure_candidates() or ()
            decided = [decisions_of(one.sch.trace) for one in chosen]
            found += [one for one in decided if tuple(one.items()) not in known]
            if len(found) >= k or not chosen:
                break
        strategy.post_tuning()
        return found


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """NumPy's global generator with a seed, and as it was afterwards."""
    before = np.random.get_state()
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        np.random.set_state(before)


@contextlib.contextmanager
def _failures_of(space: DesignSpace) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, TypeError, ValueError) as error:
        reason = one_line(error)
        raise ScheduleError(f"MetaSchedule fails on {space.task.name}: {reason[:300]}") from error
