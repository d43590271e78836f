"""Pools of programs: Gensor's come first, each program once, and only tasks that leave a choice are taken."""

from __future__ import annotations

from research.collection.collect import CollectedTask
from research.modelled_boards.pools import GENSOR, UNIFORM, PoolSizes, chosen_tasks, kind_of, pool_of
from tests.unit.tuning.simulated import dense_space, profile


def test_a_pool_has_constructed_programs_and_then_random_ones_each_once() -> None:
    space = dense_space("pooled")
    pool = pool_of(space, profile(), PoolSizes(3, 20))
    origins = [origin for _, origin in pool]
    assert origins[0] == GENSOR and origins == sorted(origins) and UNIFORM in origins
    assert len({tuple(values.items()) for values, _ in pool}) == len(pool)
    assert all(space.legal(values) for values, _ in pool)
    # A larger pool begins with the same programs, so that an interrupted collection can grow.
    drawn = [values for values, origin in pool if origin == UNIFORM]
    more = [values for values, origin in pool_of(space, profile(), PoolSizes(3, 30)) if origin == UNIFORM]
    assert more[: len(drawn)] == drawn


def test_large_tasks_are_left_out() -> None:
    space = dense_space("pooled")
    every = {"key": CollectedTask("model", space)}
    assert chosen_tasks(every, 5, most_flop=space.task.flops) == [every["key"]]
    assert chosen_tasks(every, 5, most_flop=space.task.flops - 1.0) == []
    assert kind_of(space) == "tiled/contraction/1/2"
