"""Expert iteration: the model learns to write at once what a search by an estimate finds step by step.

For each task an expert searches the space, beginning with programs of the model and with uniform ones, and
the model learns the best that it finds; the next round begins with what the model writes then (Anthony, Tian
and Barber, "Thinking Fast and Slow with Deep Learning and Tree Search", NIPS 2017). Nothing is measured: the
expert goes by what a board's measurements have taught of programs that nobody has measured. On tasks that
were not among those of the training, a few programs of the model then lie where otherwise a search has to
arrive.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from host.errors import ScheduleError, TlmError
from host.execution import Engine, LocalEngine
from host.files import write_whole
from host.schedules.api import Decisions
from host.schedules.design import DesignSpace
from host.tlm.language.description import describe_board, describe_task
from host.tlm.language.sentence import encode_prompt
from host.tlm.language.vocabulary import Vocabulary, spell_decisions
from host.tlm.model.card import CARD, read_card
from host.tlm.model.decoding import Decoder
from host.tlm.model.gpt2 import LanguageModel
from host.tlm.model.network import load_model
from host.tlm.training.example import Example, content_of, example_from
from host.tlm.training.finetune import Progress
from host.tlm.training.fitting import FinetuneOptions, Fitting, replay_of
from host.tlm.training.on_host import Advance
from host.tlm.training.replay import read_replay

LESSONS = "lessons.jsonl"
SCHEMA = "edgetlm.lessons/1"
# Of the time of a round: the rest is for the steps.
_SHARE_OF_SEARCH = 0.5

# Programs of a space with the seconds that an estimate expects of each, the best first and so many at most;
# the search begins with the given ones.
Expert = Callable[[DesignSpace, Sequence[Decisions], int], Sequence[tuple[Decisions, float]]]


@dataclass(frozen=True)
class Rounds:
    """What is searched and learned.

    Attributes:
        count: of rounds; each begins with the model of the one before.
        written: programs of the model that the search of a task begins with.
        uniform: the same, uniformly drawn.
        keep: programs of a task that are learned, the best that any round has found.
    """

    count: int = 2
    written: int = 16
    uniform: int = 48
    keep: int = 8


@dataclass(frozen=True, eq=False)
class _Task:
    """A space with the token numbers of its prompt, without the quality."""

    space: DesignSpace
    prompt: tuple[int, ...]


def apart(spaces: Sequence[DesignSpace]) -> Iterator[DesignSpace]:
    """The spaces, and in the place of one whose parts are decided apart those of its parts."""
    for space in spaces:
        yield from space.parts or (space,)


def prompt_of(space: DesignSpace, vocabulary: Vocabulary) -> tuple[int, ...]:
    """Token numbers of what a model reads of a task, without the quality.

    Raises:
        TlmError: the language has no token for a property of the task or the board.
    """
    words = encode_prompt(describe_board(space.hardware, space.threads), describe_task(space))
    return tuple(vocabulary.encode(words[:-1]))


def learned_by_search(
    options: FinetuneOptions,
    rounds: Rounds,
    spaces: Sequence[DesignSpace],
    expert: Expert,
    report: Callable[[Progress], None],
    engine: Engine | None = None,
) -> Path:
    """Trains a model on what an expert finds for some tasks; returns the folder of the checkpoint.

    No gate judges it. With `options.resume` a folder of the same training goes on where it ended.

    Args:
        options: how each round is trained; `seconds` are those of all rounds, searches too.
        rounds: what is searched and learned.
        spaces: of the tasks; those that the language cannot express or that have no legal program are left
            out, and of those that read the same all but the first.
        expert: see `Expert`.
        report: called after each step, or after some of them where another host trains.
        engine: whose hosts train; this process if None.

    Raises:
        TlmError: no task is left, a checkpoint or a state is damaged, or the folder is of another training.
    """
    vocabulary = Vocabulary()
    tasks = _tasks_of(spaces, vocabulary)
    if not tasks:
        raise TlmError("no task to learn by search: the language expresses none of them; give others")
    replay = read_replay(replay_of(options), vocabulary)
    steps = options.steps_for(len(tasks))
    start, lessons = options.start, list[Example]()
    for number in range(rounds.count):
        folder, begun = options.out / f"round-{number + 1}", time.monotonic()
        own = replace(options, start=start, out=folder, seconds=options.seconds / rounds.count)
        lessons = _kept_lessons(own, rounds, tasks, lessons, expert, number)
        if not (options.resume and (folder / CARD).is_file()):
            if own.seconds:
                own = replace(own, seconds=max(1.0, own.seconds - (time.monotonic() - begun)))
            fitting = Fitting(own, lessons, replay, engine or LocalEngine(), options.steps_for(len(lessons)))
            fitting.trained("search", lessons, folder, _told(report, number, rounds.count, steps))
            fitting.finish()
        start = folder
    return start


def lessons_by_search(
    start: Path,
    rounds: Rounds,
    spaces: Sequence[DesignSpace],
    expert: Expert,
    seed: int,
    seconds: float = 0.0,
) -> list[Example]:
    """What an expert finds for tasks in one round, to be learned beside what was measured.

    Args:
        start: folder of the model whose programs the searches begin with.
        rounds: what is searched and learned.
        spaces: see `learned_by_search`.
        expert: see `Expert`.
        seed: of what is drawn.
        seconds: no search begins later than this, but for the first; 0 for no limit.

    Raises:
        TlmError: the checkpoint is damaged.
    """
    vocabulary = Vocabulary()
    model, _ = load_model(start, vocabulary)
    return _searched(model, rounds, _tasks_of(spaces, vocabulary), expert, str(seed), seconds)


def lesson_of(
    number: int,
    prompt: tuple[int, ...],
    found: Sequence[tuple[Sequence[tuple[str, int]], float]],
    vocabulary: Vocabulary,
    keep: int,
    before: Example | None = None,
) -> Example:
    """The best programs of a task as they are learned, the fastest first.

    Args:
        number: of the task.
        prompt: see `prompt_of`.
        found: names and values of the decisions of each program in their order, with its seconds.
        vocabulary: of the language model.
        keep: programs at most.
        before: what was known of the task.
    """
    seconds: dict[tuple[int, ...], float] = {}
    if before is not None:
        seconds = {tokens: one for (tokens, _), one in zip(before.programs, before.estimates, strict=True)}
    for decisions, expected in found:
        seconds.setdefault(tuple(vocabulary.encode(spell_decisions(decisions))), expected)
    ranked = sorted(seconds, key=lambda tokens: (seconds[tokens], tokens))[:keep]
    best = seconds[ranked[0]]
    return Example(
        number,
        prompt,
        tuple((tokens, round(seconds[tokens] / best, 4)) for tokens in ranked),
        estimates=tuple(seconds[tokens] for tokens in ranked),
    )


def _tasks_of(spaces: Sequence[DesignSpace], vocabulary: Vocabulary) -> list[_Task]:
    found: dict[tuple[int, ...], _Task] = {}
    for space in spaces:
        try:
            prompt = prompt_of(space, vocabulary)
        except TlmError:
            continue
        found.setdefault(prompt, _Task(space, prompt))
    return list(found.values())


def _kept_lessons(
    options: FinetuneOptions,
    rounds: Rounds,
    tasks: Sequence[_Task],
    before: Sequence[Example],
    expert: Expert,
    number: int,
) -> list[Example]:
    """The lessons of a round, from its folder where they are there and an interrupted training goes on."""
    path, vocabulary = options.out / LESSONS, Vocabulary()
    header = _header(options, rounds, tasks)
    if options.resume and path.is_file():
        return _read(path, header)
    model, _ = load_model(options.start, vocabulary)
    seconds = _SHARE_OF_SEARCH * options.seconds
    found = _searched(model, rounds, tasks, expert, f"{options.seed}/{number}", seconds, before)
    if not found:
        raise TlmError("no task to learn by search has a legal program; give others")
    options.out.mkdir(parents=True, exist_ok=True)
    lines = [header, *map(content_of, found)]
    write_whole(path, "".join(json.dumps(one) + "\n" for one in lines).encode())
    return found


def _searched(
    model: LanguageModel,
    rounds: Rounds,
    tasks: Sequence[_Task],
    expert: Expert,
    text: str,
    seconds: float,
    before: Sequence[Example] = (),
) -> list[Example]:
    """What an expert finds for tasks, and what was known of them before; `text` is the seed."""
    vocabulary = Vocabulary()
    known = {one.prompt: one for one in before}
    end = time.monotonic() + seconds if seconds else math.inf
    found: list[Example] = []
    for place, task in enumerate(tasks):
        if found and time.monotonic() > end:
            break
        try:
            begin = _begin(model, vocabulary, task.space, rounds, f"{text}/{place}")
            programs = expert(task.space, begin, rounds.keep)
        except ScheduleError:
            continue
        named = [(_ordered(task.space, values), cost) for values, cost in programs]
        found.append(lesson_of(place, task.prompt, named, vocabulary, rounds.keep, known.get(task.prompt)))
    return found


def _begin(
    model: LanguageModel, vocabulary: Vocabulary, space: DesignSpace, rounds: Rounds, text: str
) -> list[Decisions]:
    """The programs that a search begins with.

    Raises:
        ScheduleError: the space has no legal program.
    """
    generator = random.Random(text)
    names = [decision.name for decision in space.decisions]
    written = Decoder(model, vocabulary, space).draw(rounds.written, generator.getrandbits(40))
    found = [dict(zip(names, one.values, strict=True)) for one in written]
    return [*found, *(space.sample(generator) for _ in range(rounds.uniform))]


def _ordered(space: DesignSpace, values: Decisions) -> list[tuple[str, int]]:
    return [(decision.name, values[decision.name]) for decision in space.decisions]


def _header(options: FinetuneOptions, rounds: Rounds, tasks: Sequence[_Task]) -> dict[str, object]:
    """What a training depends on, as far as a file can say it: what the expert knows is not in it."""
    text = json.dumps([task.prompt for task in tasks])
    return {
        "schema": SCHEMA,
        "start": read_card(options.start).weights,
        "seed": options.seed,
        "steps": options.steps,
        "learning_rate": options.learning_rate,
        "written": rounds.written,
        "uniform": rounds.uniform,
        "keep": rounds.keep,
        "tasks": hashlib.sha256(text.encode()).hexdigest()[:16],
    }


def _read(path: Path, header: dict[str, object]) -> list[Example]:
    try:
        first, *lines = map(json.loads, path.read_text().splitlines())
    except (OSError, ValueError) as error:
        raise TlmError(f"{path} is damaged ({error}); remove it to search again") from error
    if first != header:
        raise TlmError(f"{path}: lessons of another training; choose another folder")
    return [example_from(path, number, line) for number, line in enumerate(lines, start=2)]


def _told(
    report: Callable[[Progress], None], number: int, count: int, steps: int
) -> Callable[[Advance], None]:
    return lambda advance: report(Progress(number * steps + advance.step, count * steps, advance.loss))
