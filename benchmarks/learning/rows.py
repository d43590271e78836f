"""What was measured of each task, as a result keeps it: an interrupted measurement goes on from there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.modelled_boards.figures import Judged


@dataclass(frozen=True)
class TaskRow:
    """One task.

    Attributes:
        task: workload hash.
        model, rule: where it belongs.
        programs: of its space.
        seconds: by number of measurements, of each seed what each arm ends with.
    """

    task: str
    model: str
    rule: str
    programs: float
    seconds: Mapping[int, Sequence[Mapping[str, float]]]

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> TaskRow:
        """The row in the plain data of a result."""
        seconds = {int(budget): tuple(seeds) for budget, seeds in data["seconds"].items()}
        return cls(data["task"], data["model"], data["rule"], data["programs"], seconds)

    def data(self) -> dict[str, Any]:
        """The same as plain data; `read` gives the row back."""
        seconds = {str(budget): list(seeds) for budget, seeds in self.seconds.items()}
        return {
            "task": self.task,
            "model": self.model,
            "rule": self.rule,
            "programs": self.programs,
            "seconds": seconds,
        }


def judged_of(rows: Iterable[TaskRow], board: str, budgets: Sequence[int]) -> dict[int, list[Judged]]:
    """What the arms end with by number of measurements, one for each task and seed.

    Args:
        rows: of the tasks.
        board: on which they were measured.
        budgets: numbers of measurements.
    """
    found: dict[int, list[Judged]] = {budget: [] for budget in budgets}
    for row in rows:
        for budget, seeds in row.seconds.items():
            found[budget] += (Judged(board, row.model, row.task, row.rule, own) for own in seeds)
    return found
