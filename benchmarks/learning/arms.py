"""The programs that each arm would measure for one task, in its order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.modelled_boards.choices import CONSTRUCTED, DRAWN, Program, random_programs
from host.errors import EdgeError
from host.gensor import Gensor
from host.learned_estimate.estimate import LearnedEstimate
from host.learned_estimate.observation import values_of
from host.learned_estimate.search import first_program
from host.model import DeviceProfile
from host.schedules import DesignSpace
from host.schedules.proposer import Proposer


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
    model: Proposer,
    seed: int,
) -> dict[str, list[Program]]:
    """The programs of each arm, the first one first; nothing is measured.

    Args:
        space: of the task.
        profile: of the board.
        learned: T_hat of the board; None leaves out its arms.
        model: the language model, the likeliest program first.
        seed: of what is drawn.

    Returns:
        By arm: "gensor_t" and "gensor_that" (Gensor's programs by T and by T_hat), "random" (as drawn),
        "random32_t" and "random32_that", "tlm_likelihood", "tlm32_t" and "tlm32_that" (the same 32 programs
        of the language model by each), "search_that" (the one program that the product chooses by T_hat).
        Without the language model's arms if its language cannot express the task.
    """
    constructed = [values_of(one) for one in Gensor().propose(space, profile, (), CONSTRUCTED, seed=0)]
    drawn = _different(random_programs(space, seed))
    found = {
        "gensor_t": ordered(None, space, constructed),
        "random": drawn,
        "random32_t": ordered(None, space, drawn),
    }
    if learned is not None:
        found["gensor_that"] = ordered(learned, space, constructed)
        found["random32_that"] = ordered(learned, space, drawn)
        found["search_that"] = [first_program(learned, space, profile, constructed[0], seed)[0]]
    try:
        written = [values_of(one) for one in model.propose(space, profile, (), DRAWN, seed=seed)]
    except EdgeError:
        written = []
    if not written:
        return found
    found["tlm_likelihood"] = written
    found["tlm32_t"] = ordered(None, space, written)
    if learned is not None:
        found["tlm32_that"] = ordered(learned, space, written)
    return found


def _different(programs: Sequence[Program]) -> list[Program]:
    return list({tuple(sorted(values.items())): values for values in programs}.values())
