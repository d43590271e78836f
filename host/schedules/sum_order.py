"""Programs that add up a row in one order, whatever the number of rows of their tasks.

A language model's step computes one row, and other functions of its bundle several: those rows have the bits
of steps where sums are added up in the same order. Some decisions of a rule change the order.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable

from host.model import Candidate, Task
from host.schedules.design import DesignSpace


class SumOrder:
    """Gives tasks whose rows are the same computation (`Rule.row_of`) the order of sums of the first of them.

    Args:
        tasks: names of those that this is wanted for.
    """

    def __init__(self, tasks: Collection[str]) -> None:
        self._tasks = frozenset(tasks)
        self._known: dict[Hashable, dict[str, int]] = {}

    def of(self, task: Task, space: DesignSpace, candidate: Candidate) -> Candidate:
        """The candidate in the known order: itself, or one with other values of some decisions.

        Args:
            task: that it is a program of.
            space: of the task.
            candidate: of the space.
        """
        row = space.rule.row_of(space.workload) if task.name in self._tasks else None
        if row is None:
            return candidate
        values = {name: int(value) for name, value in candidate.decisions if not isinstance(value, tuple)}
        own = {
            kind.name: values[kind.name]
            for kind in space.rule.decisions
            if kind.orders and kind.name in values
        }
        changed = {**values, **self._known.setdefault((space.rule.name, row), own)}
        if changed == values or not space.legal(changed):
            return candidate
        return space.candidate(changed, candidate.proposer, space.estimate_s(changed))
