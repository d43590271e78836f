"""What a deployment draws for a task: by the language model, and by chance in the same steps."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

from host.errors import EdgeError
from host.learned_estimate.observation import values_of
from host.model import DeviceProfile
from host.schedules import DesignSpace
from host.schedules.proposer import Estimate
from host.tlm.model.exchanging import exchanged
from host.tlm.proposer import INFILLED, Tlm
from host.tlm.ranking import Ranking, ScoredProgram, ranked

Program = dict[str, int]

# Programs that chance and the language model draw for a ranker to choose from.
DRAWN = 32


def random_programs(space: DesignSpace, seed: int) -> list[Program]:
    """Draw `DRAWN` legal programs of the space, uniformly."""
    generator = random.Random(f"{space.task.workload_hash}/{seed}")
    return [space.sample(generator) for _ in range(DRAWN)]


def in_order(space: DesignSpace, programs: Sequence[Program], estimate: Estimate) -> list[Program]:
    """Equally likely programs in the order in which a deployment would measure them."""
    names = [decision.name for decision in space.decisions]
    scored = {
        values: ScoredProgram(values, 0.0, estimate(space, one))
        for one in programs
        for values in [tuple(one[name] for name in names)]
    }
    order = ranked(list(scored.values()), Ranking(), len(scored))
    return [dict(zip(names, one.values, strict=True)) for one in order]


def infilled_by_chance(space: DesignSpace, estimate: Estimate, seed: int) -> list[Program]:
    """32 programs, of which the last eight are drawn from the neighbours of the best of the others.

    The numbers are those of the language model's proposer.
    """
    generator = random.Random(f"infilled/{space.task.workload_hash}/{seed}")
    infilled = round(INFILLED * DRAWN)
    found = random_programs(space, seed)[: DRAWN - infilled]
    best = min(found, key=lambda one: estimate(space, one))
    around = [one for one in space.neighbours(best) if one not in found]
    return found + generator.sample(around, min(infilled, len(around)))


def exchanged_by_chance(space: DesignSpace, estimate: Estimate, seed: int) -> list[Program]:
    """32 programs, of which the last eight are put together of the parts of 32 random ones.

    The numbers and the order of steps are those of the language model's proposer.

    Args:
        space: with parts (`DesignSpace.parts`).
        estimate: by which parts are exchanged.
        seed: of the draws.
    """
    infilled = round(INFILLED * DRAWN)
    drawn = random_programs(space, seed)
    found = drawn[: DRAWN - infilled]
    names = [decision.name for decision in space.decisions]
    best = min(found, key=lambda one: estimate(space, one))
    ends = list(accumulate((len(part.decisions) for part in space.parts), initial=0))
    own = [names[start:end] for start, end in pairwise(ends)]

    def whole(parts: Sequence[Program]) -> Program:
        return {**best, **{name: value for part in parts for name, value in part.items()}}

    pools = [[{name: one[name] for name in some} for one in drawn] for some in own]
    begin = [{name: best[name] for name in some} for some in own]
    around = exchanged(begin, pools, lambda parts: estimate(space, whole(parts)))
    different = {tuple(one.values()): one for one in map(whole, around) if one not in found}
    return found + list(different.values())[:infilled]


def by_chance(space: DesignSpace, estimates: Mapping[str, Estimate], seed: int) -> dict[str, list[Program]]:
    """The programs of the arms of chance in the order in which they would be measured.

    Args:
        space: of the task.
        estimates: by name.
        seed: of the draws.

    Returns:
        By arm: "random32_NAME", uniformly drawn; "infilled_random32_NAME", see `infilled_by_chance`; and, of
        a space with parts, "exchanged_random32_NAME", see `exchanged_by_chance`.
    """
    found = {}
    for name, estimate in estimates.items():
        found[f"random32_{name}"] = in_order(space, random_programs(space, seed), estimate)
        near = infilled_by_chance(space, estimate, seed)
        found[f"infilled_random32_{name}"] = in_order(space, near, estimate)
        if space.parts:
            joined = exchanged_by_chance(space, estimate, seed)
            found[f"exchanged_random32_{name}"] = in_order(space, joined, estimate)
    return found


def written(
    model: Tlm, space: DesignSpace, profile: DeviceProfile, estimate: Estimate | None, seed: int
) -> list[Program]:
    """The programs of a language model in the order in which they would be measured.

    Args:
        model: the language model.
        space: of the task.
        profile: of the board.
        estimate: by which the model draws near the best of its programs and ranks them; None for the
            likeliest programs first.
        seed: of the draws.

    Raises:
        ScheduleError: the space has no legal program.
        TlmError: the model's language cannot express the task.
    """
    return [values_of(one) for one in model.by(estimate).propose(space, profile, (), DRAWN, seed)]


def by_model(
    model: Tlm, space: DesignSpace, profile: DeviceProfile, estimates: Mapping[str, Estimate], seed: int
) -> dict[str, list[Program]]:
    """The programs of a language model's arms in the order in which they would be measured.

    Args:
        model: the language model.
        space: of the task.
        profile: of the board.
        estimates: by name.
        seed: of the draws.

    Returns:
        By arm: "tlm_likelihood", the likeliest first; "tlm32_NAME", by each estimate. None where the model's
        language cannot express the task: its arms are left out together.
    """
    try:
        found = {"tlm_likelihood": written(model, space, profile, None, seed)}
        found |= {
            f"tlm32_{name}": written(model, space, profile, one, seed) for name, one in estimates.items()
        }
    except EdgeError:
        return {}
    return found
