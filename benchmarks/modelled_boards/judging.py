"""Tasks that teach nothing, and what the programs that arms choose for them take."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping

from benchmarks.modelled_boards.choices import programs_in
from benchmarks.modelled_boards.draws import DRAWN, Program, random_programs
from host.errors import ScheduleError
from host.schedules import DesignSpace, scheduled_function
from research.collection.collect import CollectedTask, Timer


def judged_tasks(
    every: Mapping[str, CollectedTask],
    taught: set[str],
    count: int,
    most_flop: float,
    least_programs: float = 0.0,
) -> list[CollectedTask]:
    """Tasks that taught nothing, in an order that has nothing to do with what they are.

    Args:
        every: of the networks, by workload hash.
        taught: workload hashes of the data.
        count: how many at most.
        most_flop: of a task.
        least_programs: of its space: those with no more are left out.
    """
    keys = [
        key
        for key, one in every.items()
        if one.space.task.flops <= most_flop
        and key not in taught
        and _leaves_a_choice(one.space)
        and (not least_programs or programs_in(one.space) > least_programs)
    ]
    keys.sort()
    random.Random(0).shuffle(keys)
    return [every[key] for key in keys[:count]]


def _leaves_a_choice(space: DesignSpace) -> bool:
    """Whether random programs of a task are mostly different ones."""
    return 2 * len({tuple(values.items()) for values in random_programs(space, 0)}) > DRAWN


class Judge:
    """The times of chosen programs on one board; each program is timed once.

    Args:
        timer: of the board.
        note: receives a line about each program that fails.
    """

    def __init__(self, timer: Timer, note: Callable[[str], None] = print) -> None:
        self._timer = timer
        self._note = note
        self._known: dict[tuple[object, ...], float] = {}

    def seconds(self, space: DesignSpace, chosen: Mapping[str, Program]) -> dict[str, float]:
        """Seconds of the program of each arm, timed if need be; an arm whose program fails is left out."""
        self.time(space, chosen.values())
        found = {arm: self._known.get(self._key(space, values)) for arm, values in chosen.items()}
        return {arm: seconds for arm, seconds in found.items() if seconds is not None and seconds < math.inf}

    def time(self, space: DesignSpace, programs: Iterable[Program]) -> None:
        """Times those programs of a task that were not timed yet, in interleaved rounds."""
        functions = {}
        for values in programs:
            key = self._key(space, values)
            if key not in self._known and key not in functions:
                try:
                    functions[key] = scheduled_function(space.apply(space.candidate(values, "judged")))
                except ScheduleError:
                    continue
        names = {f"kernel_{number}": key for number, key in enumerate(functions)}
        if names:
            made = {name: functions[key] for name, key in names.items()}
            times = self._timer.times(space, made, self._note)
            # Other work on the machine only adds time. A program that failed is not tried again.
            self._known.update(dict.fromkeys(functions, math.inf))
            whole = {name: rounds for name, rounds in times.items() if len(rounds) == self._timer.rounds}
            self._known.update({names[name]: min(rounds) for name, rounds in whole.items()})

    def _key(self, space: DesignSpace, values: Program) -> tuple[object, ...]:
        return (space.task.workload_hash, *sorted(values.items()))
