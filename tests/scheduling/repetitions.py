"""Random programs and products of parameters: a part of them in every run, the rest behind the marker `long`.

`make test` keeps every case of such a family with one of its programs, and every value of each parameter;
`pytest -m long` runs what is left.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest


def seeds(count: int) -> pytest.MarkDecorator:
    """Runs a test with the seeds from 0, only the first of them in every run.

    Args:
        count: of all seeds; the test has a parameter `seed`.
    """
    return pytest.mark.parametrize("seed", [_one((seed,), seed == 0) for seed in range(count)])


def in_turn(names: str, *values: Iterable[Any], ids: Any = None) -> pytest.MarkDecorator:
    """Runs a test with all combinations of values; those of the last parameter take turns in every run.

    Every combination of the other parameters runs each time, with one value of the last one: where there are
    as many as the last parameter has values, each of these runs each time too.

    Args:
        names: of the parameters, with commas between.
        values: of each parameter.
        ids: as `pytest.mark.parametrize` takes them.
    """
    places = [list(enumerate(some)) for some in values]
    combinations = []
    for numbered in product(*places):
        *before, last = (place for place, _ in numbered)
        combinations.append(
            _one(tuple(value for _, value in numbered), sum(before) % len(places[-1]) == last)
        )
    return pytest.mark.parametrize(names, combinations, ids=ids)


def _one(values: tuple[Any, ...], in_every_run: bool) -> Any:
    return pytest.param(*values, marks=[] if in_every_run else [pytest.mark.long])
