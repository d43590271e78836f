"""The arms that tune: each batch of a task's programs is chosen by what the ones before it took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.learning.arms import REFERENCE
from benchmarks.modelled_boards.draws import Program
from benchmarks.modelled_boards.judging import Judge
from host.compile.tuning.sources import sources_with
from host.learned_estimate.joined import with_part_rules
from host.learned_estimate.observation import Observation, values_of
from host.model import Candidate, DeviceProfile, Energy, Measurement
from host.schedules import DesignSpace
from host.schedules.proposer import Proposer
from host.tlm.proposer import Tlm
from host.tuning.proposers.bayesian import BayesianProposer, OpenTask, Source
from host.tuning.proposers.random_sampling import RandomSampling
from host.tuning.tasks import TuningTask

# A tuning divides its trials among all tasks of a model, so that a task has few in each batch, and more in
# later ones.
_BATCHES = (2, 4, 4, 6, 8, 8)
_UNKNOWN = Energy("unavailable", None, None, "none", reason="energy is not measured")

# The arms of `tuned_arms`.
TUNED = ("tuned_that", "tuned_chance_that", "tuned_alone_that", "tuned_t")


def tuned_arms(
    judge: Judge,
    space: DesignSpace,
    profile: DeviceProfile,
    known: Sequence[Observation],
    model: Tlm,
    arms: Mapping[str, Sequence[Program]],
    seed: int,
) -> dict[str, list[Program]]:
    """The programs of tunings, in the order in which they were measured.

    Args:
        judge: takes the times that the tunings choose by; the arms are judged by other ones.
        space: of the task.
        profile: of the board.
        known: measured programs of other tasks.
        model: the language model.
        arms: the programs of the others, see `programs_of_arms`.
        seed: of what is drawn.

    Returns:
        By arm: "tuned_that" (the sources of a deployment), "tuned_chance_that" (random programs in the place
        of the language model's), "tuned_alone_that" (nobody's in their place), "tuned_t" (as "tuned_that",
        but what was measured of other tasks is not known). Each one without the language model's programs if
        its language cannot express the task.
    """
    written = "tlm32_that" in arms
    chance = RandomSampling(name="chance")
    begin = arms["search_tlm_that" if written else "search_that"][0]
    always = arms[REFERENCE][0]
    sources: dict[str, tuple[Sequence[Observation], Proposer | None, Program]] = {
        "tuned_that": (known, model if written else None, begin),
        "tuned_chance_that": (known, chance, arms["search_that"][0]),
        "tuned_alone_that": (known, None, arms["search_that"][0]),
        "tuned_t": ((), model if written else None, always),
    }
    return {
        arm: tuned_programs(judge, space, profile, learned, sources_with(who), [always, first], seed)
        for arm, (learned, who, first) in sources.items()
    }


def tuned_programs(
    judge: Judge,
    space: DesignSpace,
    profile: DeviceProfile,
    known: Sequence[Observation],
    sources: Sequence[Source],
    begin: Sequence[Program],
    seed: int,
) -> list[Program]:
    """The programs of a tuning in the order in which it measures them, the one to begin with first.

    Args:
        judge: takes the times that the tuning chooses by.
        space: of the task.
        profile: of the board.
        known: measured programs of other tasks, from which the tuning has learned.
        sources: whose programs are judged.
        begin: what is measured in any case, and the one that the tuning begins with last.
        seed: of what is drawn.
    """
    of_rule = [one for one in known if one.rule in with_part_rules([space.rule.name])]
    proposer = BayesianProposer(sources)
    task = TuningTask(space, space.estimate_s(begin[-1]))
    measured: dict[tuple[object, ...], tuple[Candidate, float | None]] = {}

    def measure(programs: Sequence[Candidate]) -> None:
        values = {str(number): values_of(one) for number, one in enumerate(programs)}
        found = judge.seconds(space, values)
        for number, one in enumerate(programs):
            measured.setdefault(one.decisions, (one, found.get(str(number))))

    measure([space.candidate(values, "begin") for values in begin])
    order = [begin[-1]]
    for number, count in enumerate(_BATCHES):
        timed = [(one, seconds) for one, seconds in measured.values() if seconds is not None]
        own = [Observation.of(space, values_of(one), seconds) for one, seconds in timed]
        proposer.learn([*of_rule, *own])
        failed = [one for one, seconds in measured.values() if seconds is None]
        history = [(one, _measurement(seconds, profile.threads)) for one, seconds in timed]
        asked = OpenTask(task, history, (), failed)
        chosen = [one.candidate for one in proposer.propose_across([asked], profile, count, seed + number)]
        if not chosen:
            break
        measure(chosen)
        order += [values_of(one) for one in chosen]
    return order


def _measurement(seconds: float, threads: int) -> Measurement:
    return Measurement((seconds,), _UNKNOWN, {}, {}, threads)
