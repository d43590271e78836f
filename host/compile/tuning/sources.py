"""Whose programs Bayesian optimisation judges in a tuning, besides neighbours of the fastest ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from host.schedules.proposer import Proposer
    from host.tuning.proposers.bayesian import Source

# Programs of each source: constructed ones, random ones (each the best of so many by the estimate), and those
# of a further proposer. Writing them takes a language model a second or two: too much for a few trials.
_CONSTRUCTED, _RANDOM, _RANKED = 12, 24, 8
_WRITTEN, _WRITTEN_AFTER = 16, 4


def sources_with(model: Proposer | None) -> list[Source]:
    """Gensor's programs, random ones, and those of a further proposer.

    Args:
        model: the language model, or who takes its place; None for nobody.
    """
    from host.gensor import Gensor
    from host.tuning.proposers.bayesian import Source
    from host.tuning.proposers.random_sampling import RandomSampling

    found = [Source(Gensor(), _CONSTRUCTED), Source(RandomSampling(_RANKED), _RANDOM)]
    return found if model is None else [*found, Source(model, _WRITTEN, _WRITTEN_AFTER)]
