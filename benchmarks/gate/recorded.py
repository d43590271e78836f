"""Recorded programs as tasks to learn from: prompts, programs, times and estimates."""

from __future__ import annotations

import json
import math
import random
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from host.compile.device_profile import target_profile
from host.files import write_whole
from host.learned_estimate.estimate import LearnedEstimate
from host.learned_estimate.observation import EstimatedProgram, Observation
from host.model import DeviceProfile
from host.schedules import DesignSpace, space_for
from host.tlm.language.description import describe_board, describe_task
from host.tlm.language.sentence import encode_prompt
from host.tlm.language.vocabulary import Vocabulary, spell_decisions
from host.tlm.training.example import Example, content_of, example_from
from research.collection.collect import CollectedTask, tasks_in
from research.collection.dataset import MeasuredProgram, current_programs
from research.models.export import export

# Networks of the data whose name in the zoo is another one.
_NAMES = {"lraspp": "lraspp-mobilenetv3", "segformer": "segformer-b0"}
# Where the programs of a file were measured, by its name; the other files are of the first.
_TARGET, _TARGETS = "x86_64-v3", {"epyc_avx512": "x86_64-v4"}
# Fewer programs of a task leave too little to choose from.
_LEAST = 6


@dataclass(frozen=True)
class RecordedTask:
    """A task with its measured programs.

    Attributes:
        example: as the language model learns it.
        rule: of its programs.
        programs: with their estimates, in the order of those of the example.
        model: of the task.
    """

    example: Example
    rule: str
    programs: tuple[EstimatedProgram, ...]
    model: str = ""


def recorded_tasks(data: Path, keep: Path) -> list[RecordedTask]:
    """The tasks of a file of measured programs that networks still have, each once.

    Args:
        data: of measured programs (`research.collection`).
        keep: file of the tasks, made where there is none: lowering the networks takes a minute or two.

    Raises:
        UserError: the rules make none of the programs any more.
    """
    if not keep.is_file():
        programs = current_programs(data)
        networks = sorted({one.model for one in programs})
        target = _TARGETS.get(data.name.partition(".")[0], _TARGET)
        write_tasks(keep, recorded(programs, lowered(networks, target_profile(target, threads=1))))
    return read_tasks(keep)


def recorded(
    programs: Sequence[MeasuredProgram],
    spaces: Mapping[str, CollectedTask],
    board: DeviceProfile | None = None,
) -> list[RecordedTask]:
    """Measured programs by task, where enough of a task were measured and its design space is known.

    Args:
        programs: of one board.
        spaces: by workload hash.
        board: where the programs were measured, if the spaces are of another one.
    """
    by_task: dict[str, list[MeasuredProgram]] = defaultdict(list)
    for one in programs:
        by_task[one.task].append(one)
    found = []
    for number, (task, known) in enumerate(sorted(by_task.items())):
        if task in spaces and len(known) >= _LEAST:
            space = spaces[task].space
            if board is not None:
                space = space_for(space.task, board.hardware, board.threads)
            found.append(_recorded(number, space, known))
    return found


def undescribed(programs: Sequence[MeasuredProgram]) -> list[RecordedTask]:
    """The same without lowering the networks: estimates are those of the data, and prompts are empty.

    Programs without estimates are left out.
    """
    by_task: dict[str, list[MeasuredProgram]] = defaultdict(list)
    for one in programs:
        if one.estimated_s is not None:
            by_task[one.task].append(one)
    found = []
    for number, (task, known) in enumerate(sorted(by_task.items())):
        if len(known) >= _LEAST:
            estimated = [EstimatedProgram(task, one.decisions, one.estimated_s or {}) for one in known]
            found.append(gathered(number, (), known, estimated))
    return found


def write_tasks(path: Path, tasks: Sequence[RecordedTask]) -> None:
    """Keep tasks in a file."""
    write_whole(path, "".join(json.dumps(_content_of(one)) + "\n" for one in tasks).encode())


def read_tasks(path: Path) -> list[RecordedTask]:
    """The tasks of a file.

    Raises:
        TlmError: it is damaged.
    """
    lines = path.read_text().splitlines()
    return [_from(path, number, json.loads(line)) for number, line in enumerate(lines, start=1)]


def shuffled(task: RecordedTask, generator: random.Random) -> RecordedTask:
    """The same programs with times that belong to others of the task."""
    times = [slower for _, slower in task.example.programs]
    generator.shuffle(times)
    return _with_times(task, times)


def reversed_times(task: RecordedTask) -> RecordedTask:
    """The same programs, where the slowest has the time of the fastest and so on."""
    return _with_times(task, [slower for _, slower in reversed(task.example.programs)])


def observations(tasks: Sequence[RecordedTask]) -> list[Observation]:
    """The programs of tasks with times that are right beside others of the task.

    What the times of a task are relative to teaches nothing about other tasks.
    """
    return [
        Observation(one.rule, program, slower * one.programs[0].estimate_s, one.model)
        for one in tasks
        for (_, slower), program in zip(one.example.programs, one.programs, strict=True)
    ]


def learned_logs(taught: Sequence[RecordedTask], tasks: Sequence[RecordedTask]) -> list[tuple[float, ...]]:
    """The logarithms of T_hat of the programs of tasks, taught by the times of others."""
    processes = LearnedEstimate(observations(taught)).processes
    found = []
    for task in tasks:
        process, logs = processes.get(task.rule), [math.log(one.estimate_s) for one in task.programs]
        if process is not None:
            logs = process.predict(task.programs).mean.tolist()
        found.append(tuple(logs))
    return found


def _with_times(task: RecordedTask, times: Sequence[float]) -> RecordedTask:
    order = sorted(range(len(times)), key=lambda one: times[one])
    example = replace(
        task.example,
        programs=tuple((task.example.programs[one][0], times[one]) for one in order),
        estimates=tuple(task.example.estimates[one] for one in order),
    )
    return replace(task, example=example, programs=tuple(task.programs[one] for one in order))


def _content_of(task: RecordedTask) -> dict[str, Any]:
    programs = [{"values": one.values, "estimated_s": one.estimated_s} for one in task.programs]
    about = {"model": task.model, "rule": task.rule, "task": task.programs[0].task, "known": programs}
    return {**about, "example": content_of(task.example)}


def _from(path: Path, number: int, content: Any) -> RecordedTask:
    example = example_from(path, number, content["example"])
    programs = [
        EstimatedProgram(content["task"], one["values"], one["estimated_s"]) for one in content["known"]
    ]
    return RecordedTask(example, content["rule"], tuple(programs), content["model"])


def lowered(networks: Sequence[str], profile: DeviceProfile) -> dict[str, CollectedTask]:
    """The tasks of networks of the zoo by workload hash, with their design spaces for a board."""
    found: dict[str, CollectedTask] = {}
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as name:
        for network in networks:
            found |= tasks_in([export(_NAMES.get(network, network), Path(name), "onnx")], profile)
    return found


def _recorded(number: int, space: DesignSpace, programs: Sequence[MeasuredProgram]) -> RecordedTask:
    words = encode_prompt(describe_board(space.hardware, 1), describe_task(space))
    # Estimated anew: not every file has the estimates of its programs.
    estimated = [EstimatedProgram.of(space, one.decisions) for one in programs]
    return gathered(number, tuple(Vocabulary().encode(words[:-1])), programs, estimated)


def gathered(
    number: int,
    prompt: tuple[int, ...],
    programs: Sequence[MeasuredProgram],
    estimates: Sequence[EstimatedProgram],
) -> RecordedTask:
    """Programs of a task as it is learned, the fastest first.

    Args:
        number: of the task.
        prompt: that describes it.
        programs: measured ones of the task.
        estimates: of each of them.
    """
    vocabulary = Vocabulary()
    times: dict[tuple[int, ...], tuple[float, EstimatedProgram]] = {}
    for one, estimate in zip(programs, estimates, strict=True):
        decided = tuple(vocabulary.encode(spell_decisions(one.decisions.items())))
        known = times.get(decided)
        times[decided] = one.seconds if known is None else min(one.seconds, known[0]), estimate
    ranked = sorted(times, key=lambda decided: (times[decided][0], decided))
    best = times[ranked[0]][0]
    estimated = tuple(times[decided][1] for decided in ranked)
    example = Example(
        number,
        prompt,
        tuple((decided, round(times[decided][0] / best, 4)) for decided in ranked),
        estimates=tuple(one.estimate_s for one in estimated),
    )
    return RecordedTask(example, programs[0].rule, estimated, programs[0].model)
