"""Recorded programs as tasks to learn from: prompts, programs, times and estimates."""

from __future__ import annotations

import json
import math
import random
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from host.compile.device_profile import target_profile
from host.files import write_whole
from host.tlm.language.description import describe_board, describe_task
from host.tlm.language.sentence import encode_prompt
from host.tlm.language.vocabulary import Vocabulary, spell_decisions
from host.tlm.training.example import Example, content_of, example_from
from research.collection.collect import CollectedTask, tasks_in
from research.collection.dataset import MeasuredProgram, current_programs
from research.models.export import export

# Networks of the data whose name in the zoo is another one.
_NAMES = {"lraspp": "lraspp-mobilenetv3", "segformer": "segformer-b0"}
_TARGET = "x86_64-v3"
# Fewer programs of a task leave too little to choose from.
_LEAST = 6


def recorded_tasks(data: Path, keep: Path) -> list[Example]:
    """The tasks of a file of measured programs that networks still have, each once.

    Args:
        data: of measured programs (`research.collection`).
        keep: file of the tasks, made where there is none: lowering the networks takes a minute or two.

    Raises:
        UserError: the rules make none of the programs any more.
    """
    if not keep.is_file():
        programs = current_programs(data)
        by_task: dict[str, list[MeasuredProgram]] = defaultdict(list)
        for one in programs:
            by_task[one.task].append(one)
        spaces = _lowered(sorted({one.model for one in programs}))
        examples = [
            _example(number, spaces[task], known)
            for number, (task, known) in enumerate(sorted(by_task.items()))
            if task in spaces and len(known) >= _LEAST
        ]
        write_whole(keep, "".join(json.dumps(content_of(one)) + "\n" for one in examples).encode())
    lines = keep.read_text().splitlines()
    return [example_from(keep, number, json.loads(line)) for number, line in enumerate(lines, start=1)]


def shuffled(example: Example, generator: random.Random) -> Example:
    """The same programs with times that belong to others of the task."""
    times = [slower for _, slower in example.programs]
    generator.shuffle(times)
    return _with_times(example, times)


def reversed_times(example: Example) -> Example:
    """The same programs, where the slowest has the time of the fastest and so on."""
    return _with_times(example, [slower for _, slower in reversed(example.programs)])


def _with_times(example: Example, times: Sequence[float]) -> Example:
    order = sorted(range(len(times)), key=lambda one: times[one])
    return replace(
        example,
        programs=tuple((example.programs[one][0], times[one]) for one in order),
        estimates=tuple(example.estimates[one] for one in order),
    )


def _lowered(networks: Sequence[str]) -> dict[str, CollectedTask]:
    profile = target_profile(_TARGET, threads=1)
    found: dict[str, CollectedTask] = {}
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as name:
        for network in networks:
            found |= tasks_in([export(_NAMES.get(network, network), Path(name), "onnx")], profile)
    return found


def _example(number: int, task: CollectedTask, programs: Sequence[MeasuredProgram]) -> Example:
    vocabulary = Vocabulary()
    words = encode_prompt(describe_board(task.space.hardware, 1), describe_task(task.space))
    times: dict[tuple[int, ...], tuple[float, float]] = {}
    for one in programs:
        decided = tuple(vocabulary.encode(spell_decisions(one.decisions.items())))
        seconds = min(one.seconds, times.get(decided, (math.inf, 0.0))[0])
        # Estimated anew: not every file has the estimates of its programs.
        times[decided] = seconds, task.space.estimate_s(one.decisions)
    ranked = sorted(times, key=lambda decided: (times[decided][0], decided))
    best = times[ranked[0]][0]
    return Example(
        number,
        tuple(vocabulary.encode(words)),
        tuple((decided, round(times[decided][0] / best, 4)) for decided in ranked),
        estimates=tuple(times[decided][1] for decided in ranked),
    )
