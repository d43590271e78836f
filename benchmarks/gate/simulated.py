"""Tasks of a simulated board that departs from what is said of it, the same way in all tasks."""

from __future__ import annotations

import random
from pathlib import Path

from benchmarks.gate.recorded import RecordedTask, gathered, read_tasks, write_tasks
from host.errors import ScheduleError
from host.learned_estimate.observation import EstimatedProgram
from host.schedules import DesignSpace
from host.schedules.drawing import draw_ranked
from host.tlm.language.description import describe_board, describe_task
from host.tlm.language.sentence import encode_prompt
from host.tlm.language.vocabulary import Vocabulary
from research.collection.dataset import MeasuredProgram
from research.figures.finetuning import BOARD, NOISE, tasks_of, truth_of

# Of each board: tasks, and different programs of a task, as many as the gate looks at.
TASKS, _PROGRAMS = 120, 64
# Fewer programs of a task leave too little to choose from.
_LEAST = 16
# Every other program is the best of so many by the estimate; draws for one program.
_RANKED, _DRAWS = 4, 4
# What the tasks depend on.
DESIGN = {
    # 2 since prompts end before the quality, as those of records do.
    "version": 2,
    "tasks": TASKS,
    "programs": _PROGRAMS,
    "least": _LEAST,
    "ranked": _RANKED,
    "draws": _DRAWS,
    "noise": NOISE,
    "board": BOARD,
}


def simulated_tasks(seed: int, keep: Path) -> list[RecordedTask]:
    """The tasks of one simulated board, which are drawn with it: see `research.figures.finetuning`.

    Args:
        seed: of board and tasks.
        keep: file of the tasks, made where there is none.
    """
    if not keep.is_file():
        truth = truth_of(seed)
        found: list[RecordedTask] = []
        for space in tasks_of(BOARD, seed, TASKS):
            drawn = _drawn(space, random.Random(f"gate/{seed}/{space.task.workload_hash}"))
            if len(drawn) >= _LEAST:
                noise = random.Random(f"gate/{seed}/noise/{space.task.workload_hash}")
                times = [truth(space, values) * noise.lognormvariate(0.0, NOISE) for values in drawn]
                found.append(_task(len(found), space, drawn, times))
        write_tasks(keep, found)
    return read_tasks(keep)


def _drawn(space: DesignSpace, generator: random.Random) -> list[dict[str, int]]:
    """Different programs of a task; fewer where there are no more."""
    found: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}
    for number in range(_DRAWS * _PROGRAMS):
        try:
            values = draw_ranked(space, generator, _RANKED if number % 2 else 1)
        except ScheduleError:
            break
        found.setdefault(tuple(sorted(values.items())), values)
        if len(found) == _PROGRAMS:
            break
    return list(found.values())


def _task(number: int, space: DesignSpace, drawn: list[dict[str, int]], times: list[float]) -> RecordedTask:
    words = encode_prompt(describe_board(space.hardware, space.threads), describe_task(space))
    task, rule = space.task, space.rule
    programs = [
        MeasuredProgram(
            "", task.workload_hash, task.name, rule.name, rule.version, values, "simulated", (time,)
        )
        for values, time in zip(drawn, times, strict=True)
    ]
    estimates = [EstimatedProgram.of(space, values) for values in drawn]
    return gathered(number, tuple(Vocabulary().encode(words[:-1])), programs, estimates)
