"""Time what rankers choose from: `python -m research.modelled_boards.pools FOLDER MODEL... [options]`.

For each board and each of `--tasks` tasks, Gensor's programs and uniformly random ones are timed on the
modelled board: whatever a ranker chooses from them, its time is known. The models are lowered once, for the
first board; every board gets the same tasks, with a space of its own. FOLDER gets a file a board in the form
of `research.collection`, and can be continued. All boards get the first task before the second is begun, so
that any part of the data is balanced. Nothing of this machine is timed.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from host.errors import ScheduleError
from host.gensor import Gensor
from host.learned_estimate.observation import values_of
from host.model import DeviceProfile
from host.schedules import DesignSpace, space_for
from research.collection.collect import CollectedTask, tasks_in, timed_programs
from research.collection.dataset import append_programs, read_programs
from research.collection.draw import Values
from research.modelled_boards.boards import modelled_board, modelled_board_names
from research.modelled_boards.timer import ModelledTimer, profile_of_modelled

# Random draws of which a space has to give so many different programs to leave a choice.
_DRAWN, _DIFFERENT = 32, 16
GENSOR, UNIFORM = "gensor", "uniform"


@dataclass(frozen=True)
class PoolSizes:
    """How many programs of a task are timed.

    Attributes:
        constructed: by Gensor, the one with the least estimate first.
        drawn: at random.
    """

    constructed: int
    drawn: int


def pool_of(space: DesignSpace, profile: DeviceProfile, sizes: PoolSizes) -> list[tuple[Values, str]]:
    """The programs of a task with their origin, each once: Gensor's in their order, then random ones."""
    found: dict[tuple[object, ...], tuple[Values, str]] = {}
    for one in Gensor().propose(space, profile, (), sizes.constructed, seed=0):
        found[tuple(values_of(one).items())] = (values_of(one), GENSOR)
    generator = random.Random(f"{space.task.workload_hash}/pool")
    for _ in range(sizes.drawn):
        values = space.sample(generator)
        found.setdefault(tuple(values.items()), (values, UNIFORM))
    return list(found.values())


def chosen_tasks(every: Mapping[str, CollectedTask], count: int, most_flop: float) -> list[CollectedTask]:
    """Tasks of all rules and kinds in turn, small enough and with a choice, in an order without meaning.

    Args:
        every: by workload hash.
        count: how many at most.
        most_flop: of a task.
    """
    groups: dict[str, list[CollectedTask]] = defaultdict(list)
    for key in sorted(every, key=lambda key: random.Random(f"{key}/order").random()):
        one = every[key]
        if one.space.task.flops <= most_flop and _leaves_a_choice(one.space):
            groups[kind_of(one.space)].append(one)
    found: list[CollectedTask] = []
    while any(groups.values()) and len(found) < count:
        found += [group.pop(0) for _, group in sorted(groups.items()) if group]
    return found[:count]


def kind_of(space: DesignSpace) -> str:
    """The rule of a task, with the number of axes that its anchor sums over and of arguments it reads."""
    anchor = space.workload.anchor_stage
    axes = range(len(anchor.axes))
    sums = sum(1 for axis in axes if anchor.axes[axis].reduce and anchor.axes[axis].extent > 1)
    every = sum(1 for access in anchor.reads if access.argument)
    return f"{space.rule.name}/{anchor.kind}/{min(sums, 3)}/{min(every, 2)}"


def _leaves_a_choice(space: DesignSpace) -> bool:
    generator = random.Random(0)
    try:
        drawn = [space.sample(generator) for _ in range(_DRAWN)]
    except ScheduleError:
        return False
    return len({tuple(values.items()) for values in drawn}) >= _DIFFERENT


class PoolCollector:
    """Adds the timed pools of one board to a file.

    Args:
        board: name of the modelled board.
        path: of the file.
        folder: for a library at a time; exists.
    """

    def __init__(self, board: str, path: Path, folder: Path) -> None:
        modelled = modelled_board(board)
        self.board = board
        self.profile = profile_of_modelled(modelled)
        self._timer = ModelledTimer(modelled, folder)
        self._path = path
        self._known = {(one.task, one.decided) for one in read_programs(path)}

    def collect(self, task: CollectedTask, sizes: PoolSizes) -> int:
        """Time what is not in the file of one task's pool; how many programs it was.

        Args:
            task: its space may be another board's.
            sizes: of the pool.
        """
        space = self._own(task.space)
        if space is None:
            return 0
        key = space.task.workload_hash
        pool = pool_of(space, self.profile, sizes)
        new = [one for one in pool if (key, frozenset(one[0].items())) not in self._known]
        measured = timed_programs(self._timer, task, space, new, pool[0][0], print)
        append_programs(self._path, measured)
        return len(measured)

    def _own(self, space: DesignSpace) -> DesignSpace | None:
        try:
            return space_for(space.task, self.profile.hardware, self.profile.threads)
        except ScheduleError:
            return None


def collect(
    collectors: Sequence[PoolCollector], tasks: Sequence[CollectedTask], sizes: PoolSizes, until: float
) -> None:
    """Time the pools of tasks, each task on all boards before the next.

    Args:
        collectors: of the boards.
        tasks: in order.
        sizes: of the pools.
        until: `time.monotonic()` at which no further pool is begun.
    """
    for task in tasks:
        for collector in collectors:
            begun = time.monotonic()
            if begun >= until:
                return
            done = collector.collect(task, sizes)
            spent = time.monotonic() - begun
            print(f"{collector.board} {task.model} {task.space.task.name} {done} {spent:.1f} s", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Time the pools until every task has its programs or time is up."""
    parser = argparse.ArgumentParser(prog="python -m research.modelled_boards.pools", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--boards", nargs="+", choices=modelled_board_names(), required=True)
    parser.add_argument("--tasks", type=int, default=40)
    parser.add_argument("--constructed", type=int, default=12)
    parser.add_argument("--drawn", type=int, default=36)
    parser.add_argument("--most-mflop", type=float, default=2.0)
    parser.add_argument("--minutes", type=float, default=60.0)
    options = parser.parse_args(arguments)
    until = time.monotonic() + 60.0 * options.minutes
    sizes = PoolSizes(options.constructed, options.drawn)
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as name:
        collectors = []
        for board in options.boards:
            place = Path(name) / board
            place.mkdir()
            collectors.append(PoolCollector(board, options.folder / f"{board}.jsonl", place))
        every = tasks_in(options.models, collectors[0].profile)
        tasks = chosen_tasks(every, options.tasks, 1e6 * options.most_mflop)
        print(f"{len(tasks)} of {len(every)} tasks", flush=True)
        collect(collectors, tasks, sizes, until)


if __name__ == "__main__":
    main()
