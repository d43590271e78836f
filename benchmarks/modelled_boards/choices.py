"""The programs that each arm chooses for one task, without measuring any of them."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from benchmarks.learned_estimate.withheld import shuffled
from benchmarks.modelled_boards.draws import Program, by_chance, by_model, random_programs
from host.gensor import Gensor
from host.learned_estimate.estimate import LearnedEstimate, expected_choice
from host.learned_estimate.observation import Observation, values_of
from host.learned_estimate.search import first_program
from host.model import DeviceProfile
from host.schedules import DesignSpace
from host.schedules.proposer import Estimate
from host.tlm.proposer import Tlm

# Programs that Gensor constructs.
CONSTRUCTED = 24
# Random values of which the legal ones are counted.
_LEGAL_DRAWS = 2000
# Records of the new board, besides those of other boards.
BUDGETS = (10, 50, 200)


class BoardEstimates:
    """Learned estimates of one board, by the records from which they were learned.

    Args:
        own: programs of the board, on networks that are not judged.
        others: the same of other boards, with their names.
        seed: of the choice of records.
    """

    def __init__(self, own: Sequence[Observation], others: Sequence[Observation], seed: int) -> None:
        generator = random.Random(seed)
        few = {count: generator.sample(list(own), min(count, len(own))) for count in BUDGETS}
        self.estimates = {f"own_{count}": LearnedEstimate(known) for count, known in few.items()}
        self.estimates["others"] = LearnedEstimate(others)
        for count, known in few.items():
            self.estimates[f"others_{count}"] = LearnedEstimate([*others, *known])
        self.estimates["shuffled"] = LearnedEstimate(shuffled(few[BUDGETS[-1]], seed))


def best(estimate: LearnedEstimate | None, space: DesignSpace, programs: Sequence[Program]) -> Program:
    """The one of some programs that an estimate chooses.

    Args:
        estimate: learned; None takes the least estimate of the space.
        space: of the task.
        programs: to choose from.
    """
    first = int(np.argmin([space.estimate_s(values) for values in programs]))
    if estimate is None:
        return programs[first]
    return programs[expected_choice(estimate.predict(space, programs), first)]


def chosen_programs(
    space: DesignSpace,
    profile: DeviceProfile,
    learned: BoardEstimates,
    model: Tlm | None,
    seed: int,
) -> dict[str, Program]:
    """The program of each arm.

    Args:
        space: of the task.
        profile: of the board.
        learned: its learned estimates.
        model: the language model; None leaves out its arms.
        seed: of what is drawn.
    """
    constructed = [values_of(one) for one in Gensor().propose(space, profile, (), CONSTRUCTED, seed=0)]
    most = learned.estimates[f"others_{BUDGETS[-1]}"]
    estimates: dict[str, Estimate] = {"t": DesignSpace.estimate_s, "that": most.cost_s}
    found = {"gensor_t": constructed[0], "random_first": random_programs(space, seed)[0]}
    for name, estimate in learned.estimates.items():
        found[f"gensor_that_{name}"] = best(estimate, space, constructed)
    found["search_that"] = first_program(most, space, profile, constructed[0], seed)[0]
    ordered = by_chance(space, estimates, seed)
    if model is not None:
        ordered |= by_model(model, space, profile, estimates, seed)
    return found | {arm: programs[0] for arm, programs in ordered.items()}


def programs_in(space: DesignSpace) -> float:
    """About how many legal programs a space has: its values, times the legal share of random ones.

    That of a space with parts is the product of theirs: their legal share as a whole is too small to be seen.
    """
    if space.parts:
        others = space.decisions[sum(len(part.decisions) for part in space.parts) :]
        return math.prod([*map(programs_in, space.parts), *(float(len(one.choices)) for one in others)])
    values = math.prod(len(decision.choices) for decision in space.decisions)
    generator = random.Random(space.task.workload_hash)
    drawn = ({d.name: generator.choice(d.choices) for d in space.decisions} for _ in range(_LEGAL_DRAWS))
    return values * sum(space.rule.legal(space.workload, space.hardware, one) for one in drawn) / _LEGAL_DRAWS


def of_board(observations: Mapping[str, Sequence[Observation]], board: str) -> list[Observation]:
    """What the boards but one have measured, with their names."""
    return [
        replace(one, board=name)
        for name, known in sorted(observations.items())
        if name != board
        for one in known
    ]
