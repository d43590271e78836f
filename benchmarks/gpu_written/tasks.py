"""Which tasks are measured: withheld ones of all kinds, with large spaces first."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.modelled_boards.choices import programs_in
from host.errors import ScheduleError
from host.importers import load_here
from host.lowering import lower
from host.model import DeviceProfile, Task
from host.options.numeric_types import half_of
from host.schedules import DesignSpace, space_for
from research.pretraining.held_out import is_held_out

# Of all tasks, the share of each kind: rule and type. What a kind lacks is filled up with the others; kinds
# that are not named come last. Products in single precision have the largest spaces of a GPU.
SHARES = {
    "cuda_mma fp16": 0.45,
    "cuda_tiled fp16": 0.15,
    "cuda_tiled fp32": 0.175,
    "cuda_depthwise fp16": 0.1,
    "cuda_rowwise fp16": 0.075,
    "cuda_injective fp16": 0.05,
}
DTYPES = ("fp16", "fp32")
# Larger arguments take longer to draw and to copy than the programs to run.
_MOST_BYTES = 32 << 20


@dataclass(frozen=True)
class WithheldTask:
    """A task that the language model was not trained on.

    Attributes:
        name: with its network and type.
        network: that it is of.
        dtype: of the network, a key of `--dtype`.
        space: of its programs.
        programs: about how many legal ones there are.
    """

    name: str
    network: str
    dtype: str
    space: DesignSpace
    programs: float

    @property
    def kind(self) -> str:
        """Of the program and its numbers."""
        return f"{self.space.rule.name} {self.dtype}"


def withheld_tasks(path: Path, network: str, profile: DeviceProfile) -> list[WithheldTask]:
    """The held-out tasks of a network that have a choice, each workload once for each type."""
    model = load_here(path, golden_cases=1)
    found: dict[tuple[str, str], WithheldTask] = {}
    for dtype in DTYPES:
        for task in lower(model, profile.board, half=half_of(dtype)).tasks:
            try:
                space = space_for(task, profile.hardware, profile.threads)
            except ScheduleError:
                continue
            if space.decisions and is_held_out(space.workload) and _bytes(task) <= _MOST_BYTES:
                name = f"{network} {task.name} {dtype}"
                one = WithheldTask(name, network, dtype, space, programs_in(space))
                found.setdefault((task.workload_hash, dtype), one)
    return list(found.values())


def chosen_tasks(tasks: Sequence[WithheldTask], count: int) -> list[WithheldTask]:
    """Some of the tasks, all kinds in turns, so that the first of them are of all kinds.

    Within a kind the networks take turns too, each with its largest spaces first. A workload that two
    networks have is taken once.
    """
    different = {task.space.task.workload_hash: task for task in reversed(tasks)}
    waiting: dict[str, list[WithheldTask]] = defaultdict(list)
    for task in different.values():
        waiting[task.kind].append(task)
    queues = {kind: _in_turns(of_kind) for kind, of_kind in sorted(waiting.items())}
    taken: dict[str, int] = dict.fromkeys(queues, 0)
    found: list[WithheldTask] = []
    while len(found) < count and any(queues.values()):
        # The kind that is furthest behind its share; kinds without one come last.
        kind = min(
            (kind for kind, queue in queues.items() if queue),
            key=lambda one: ((taken[one] + 1) / SHARES.get(one, 1e-3), one),
        )
        taken[kind] += 1
        found.append(queues[kind].pop(0))
    return found


def _in_turns(tasks: Sequence[WithheldTask]) -> list[WithheldTask]:
    by_network: dict[str, list[WithheldTask]] = defaultdict(list)
    for task in sorted(tasks, key=lambda one: one.space.task.workload_hash):
        by_network[task.network].append(task)
    ranks = []
    for of_network in by_network.values():
        of_network.sort(key=lambda one: -one.programs)
        ranks += list(enumerate(of_network))
    # Equal ranks in an order that does not favour a name.
    random.Random(len(ranks)).shuffle(ranks)
    return [task for _, task in sorted(ranks, key=lambda one: one[0])]


def _bytes(task: Task) -> int:
    return sum(
        math.prod(int(extent) for extent in buffer.shape) * np.dtype(str(buffer.dtype)).itemsize
        for buffer in task.function.params
    )
