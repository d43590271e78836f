"""The programs that each arm would measure for one task, in its order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.modelled_boards.choices import CONSTRUCTED
from benchmarks.modelled_boards.draws import Program, by_chance, by_model, random_programs
from host.compile.tuning.first_programs import WRITTEN
from host.gensor import Gensor
from host.learned_estimate.estimate import LearnedEstimate
from host.learned_estimate.observation import values_of
from host.learned_estimate.search import first_program
from host.model import DeviceProfile
from host.schedules import DesignSpace
from host.schedules.proposer import Estimate
from host.tlm.proposer import Tlm

# The arm whose first program a tuning measures in any case.
REFERENCE = "gensor_t"


def ordered(
    estimate: LearnedEstimate | None, space: DesignSpace, programs: Sequence[Program]
) -> list[Program]:
    """Programs in the order of an estimate, the least first.

    Args:
        estimate: learned; None takes the estimate of the space.
        space: of the task.
        programs: to order.
    """
    seconds = [space.estimate_s(values) for values in programs]
    if estimate is None:
        return [programs[number] for number in np.argsort(seconds, kind="stable")]
    return [programs[number] for number in np.argsort(estimate.means(space, programs), kind="stable")]


def programs_of_arms(
    space: DesignSpace,
    profile: DeviceProfile,
    learned: LearnedEstimate | None,
    model: Tlm,
    seed: int,
) -> dict[str, list[Program]]:
    """The programs of each arm, the first one first; nothing is measured.

    Args:
        space: of the task.
        profile: of the board.
        learned: T_hat of the board; None leaves out its arms.
        model: the language model.
        seed: of what is drawn.

    Returns:
        By arm: "gensor_t" and "gensor_that" (Gensor's programs by T and by T_hat), "random" (as drawn),
        "random32_t" and "random32_that" (the same by each), "infilled_random32_t" and
        "infilled_random32_that" (24 of them, and 8 near the best of these by each), "tlm_likelihood" (the
        likeliest of 32 programs of the language model first), "tlm32_t" and "tlm32_that" (its programs as a
        deployment lets it write them by each), "search_that" (the one program that a deployment chooses by
        T_hat), "search_tlm_that" (the same with the language model's programs). Without the language model's
        arms if its language cannot express the task.
    """
    constructed = [values_of(one) for one in Gensor().propose(space, profile, (), CONSTRUCTED, seed=0)]
    estimates: dict[str, Estimate] = {"t": DesignSpace.estimate_s}
    found = {REFERENCE: ordered(None, space, constructed), "random": _drawn(space, seed)}
    if learned is not None:
        estimates["that"] = learned.cost_s
        found["gensor_that"] = ordered(learned, space, constructed)
        found["search_that"] = [first_program(learned, space, profile, constructed[0], seed)[0]]
    found |= by_chance(space, estimates, seed)
    found |= by_model(model, space, profile, estimates, seed)
    if learned is not None and "tlm32_that" in found:
        # As `host.compile.tuning.first_programs` does.
        first = found["tlm32_that"][:WRITTEN]
        begin = min(first, key=space.estimate_s)
        choice = first_program(learned, space, profile, begin, seed, constructed[:1], first)
        found["search_tlm_that"] = [choice[0]]
    return found


def _drawn(space: DesignSpace, seed: int) -> list[Program]:
    """Different programs as they are drawn."""
    programs = random_programs(space, seed)
    return list({tuple(sorted(values.items())): values for values in programs}.values())
