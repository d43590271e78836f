"""Tunings of the tasks of a simulated board by the loop of the product, with measurements that have noise."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.energy.boards import TrueBoard
from host.compile.tuning.sources import sources_with
from host.gensor import Gensor
from host.learned_estimate.observation import values_of
from host.model import Candidate, DeviceProfile, Energy, Measurement
from host.records import MODEL, RecordOrigin, RecordStore
from host.records.choice import best_program
from host.schedules import DesignSpace
from host.schedules.proposer import Proposer
from host.tuning.budget import Budget
from host.tuning.history import TuningHistory
from host.tuning.loop import tune
from host.tuning.options import TuneOptions
from host.tuning.proposers.bayesian import BayesianProposer, OpenTask
from host.tuning.proposers.random_sampling import RandomSampling
from host.tuning.runners.runner import Outcome, Program
from host.tuning.tasks import TuningTask

# Standard deviation of a measured time and of measured watts, in logarithms.
TIME_NOISE, WATTS_NOISE = 0.02, 0.02
# Random programs of which each proposed one is the best by the estimate.
_RANKED = 8
# Programs of which chance draws for the ranker.
_DRAWN = 32


class TrueRunner:
    """Builds nothing; measures by the truth with noise. A `host.tuning.runners.runner.Runner`.

    Args:
        board: of the truth.
        seed: of the noise.
    """

    def __init__(self, board: TrueBoard, seed: int) -> None:
        self._board = board
        self._luck = random.Random(f"noise/{seed}")

    def build(self, task: TuningTask, candidate: Candidate) -> Path:
        """See `Runner.build`: a name."""
        return Path("unbuilt")

    def run(
        self,
        programs: Sequence[Program],
        may_begin: Callable[[], bool],
        more: Callable[[], Sequence[Program]] | None = None,
    ) -> Iterator[Outcome]:
        """See `Runner.run`."""
        for program in programs:
            values = values_of(program.candidate)
            seconds, watts = self._board.seconds_and_watts(program.task.space, values)
            watts *= self._luck.lognormvariate(0.0, WATTS_NOISE)
            energy = Energy("simulated", watts * seconds, None, "replay", boundary="board", mean_w=watts)
            seconds *= self._luck.lognormvariate(0.0, TIME_NOISE)
            yield Outcome(program, Measurement((seconds,), energy, {}, {}, 1), "", "simulated")


class RandomPrograms(BayesianProposer):
    """The ranker of the product, which has nothing but random programs to choose from."""

    def _pool(self, open_task: OpenTask, profile: DeviceProfile, seed: int) -> Iterator[Candidate]:
        space = open_task.task.space
        generator = random.Random(f"chance/{space.task.workload_hash}/{seed}")
        for _ in range(_DRAWN):
            yield space.candidate(space.sample(generator, attempts=20_000), "random")


def proposers(arm: str, exponent: float) -> list[Proposer]:
    """Who proposes in a tuning: "learned", "random" or "random_ranked"."""
    if arm == "random":
        return [RandomSampling(_RANKED)]
    if arm == "random_ranked":
        return [RandomPrograms((), exponent=exponent)]
    return [BayesianProposer(sources_with(None), exponent=exponent)]


class Tuned:
    """The tuning of some tasks of a board, one after another; what the earlier ones have measured teaches.

    Args:
        board: of the truth.
        spaces: of the tasks.
        arm: who proposes, see `proposers`.
        exponent: of watts in the cost that programs are measured by.
        measurements: of a task.
        seed: of noise and proposals.
        folder: for the records.
    """

    def __init__(
        self,
        board: TrueBoard,
        spaces: Sequence[DesignSpace],
        arm: str,
        exponent: float,
        measurements: int,
        seed: int,
        folder: Path,
    ) -> None:
        tasks = [
            TuningTask(space, space.estimate_s(values_of(first)), first, energy=True)
            for space in spaces
            for [first] in [Gensor().propose(space, board.profile, (), 1, seed=0)]
        ]
        with RecordStore(folder / f"{arm}-{exponent}.sqlite") as store:
            runner = TrueRunner(board, seed)
            for task in tasks:
                # The first program is none of the trials, and nothing is proposed before what is known.
                options = TuneOptions(
                    f"{task.key}/{arm}/{seed}",
                    Budget(measurements - 1, batch=1, together=True),
                    seed=seed,
                    concurrent=False,
                    confirm=True,
                    origin=RecordOrigin(measured_in=MODEL),
                    exponent=exponent,
                )
                tune([task], board.profile, proposers(arm, exponent), runner, store, options)
            history = TuningHistory.read(store, board.profile, "", MODEL)
        self._records = {task.key: [one for one, _ in history.task_records(task)] for task in tasks}

    def measured(self, task: str) -> list[Mapping[str, int]]:
        """The programs of a task that were measured."""
        return [values_of(one.candidate) for one in self._records[task]]

    def taken(self, task: str, exponent: float) -> Mapping[str, int]:
        """The program of a task that is taken by its records."""
        found = best_program(self._records[task], exponent)
        assert found is not None
        return values_of(found[0].candidate)
