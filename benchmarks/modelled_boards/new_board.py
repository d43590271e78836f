"""A new board with 7% of the data: `python -m benchmarks.modelled_boards.new_board`.

    python -m benchmarks.modelled_boards.new_board --data FOLDER... --folder FOLDER [--seeds N] [--json F]

Each `--data` has timed programs of modelled boards, BOARD.jsonl or BOARD.jsonl.gz (`python -m
research.modelled_boards` and its `pools`). No training saw a time of these boards. On each board half of the
networks teach, 18 programs of each task (7% of the 256 of a search), and the tasks that only the other half
has are judged; then the other way round. Each arm orders the timed programs of a task without their times:

    t                   by the estimate
    that                by T_hat, which the records teach: its cautious choice first, then by its mean
    that_mean           by its mean alone, as the product takes it
    deployed            as `that_mean` where the evidence of the rule convinces, else as `t`
    boards              as `that`, taught by the other boards too, less what they know of judged networks
    fleet               the same with that: only the new board has not measured the judged networks
    fleet_alone         as `fleet`, without any record of the new board
    that_shuffled, fleet_shuffled     taught with times that are shuffled within each task on each board
    chance_t, chance_that, chance_fleet     of 32 programs drawn uniformly, by the estimate or a mean of T_hat
With `--language-model`, for the first draw of the records, also

    tlm_t, tlm_that     of 32 programs drawn by the shipped language model
    tuned_t, tuned_that      the same by the model that is fine-tuned on the records, whatever the gate says
    tuned_shuffled      as `tuned_t`, with shuffled times

Draws are with replacement, and the mean of 16 of them counts. Ratios are speeds of first programs and of the
best of ten, over tasks, with 95% intervals. FOLDER keeps the tasks and what was chosen; a later
call goes on there. Nothing is timed here.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gate.__main__ import by_chance, ranked_by
from benchmarks.gate.recorded import (
    RecordedTask,
    lowered,
    observations,
    read_tasks,
    recorded,
    shuffled,
    undescribed,
    write_tasks,
)
from benchmarks.modelled_boards.new_board_figures import figures_of, shares_of
from benchmarks.result_file import add_json_option, heading, write_result
from host.errors import UserError
from host.execution import LocalEngine
from host.learned_estimate.estimate import LearnedEstimate, cautious_choice
from host.learned_estimate.evidence import evidence_of
from host.learned_estimate.process import Prediction
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.checkpoints import SHIPPED
from host.tlm.model.network import load_model
from host.tlm.training import gate
from host.tlm.training.fitting import FinetuneOptions, Fitting
from host.tlm.training.replay import REPLAY, read_replay
from research.collection.dataset import MeasuredProgram, current_programs
from research.modelled_boards.boards import modelled_board, modelled_board_names
from research.modelled_boards.timer import profile_of_modelled

SCHEMA = "edgetlm.new_board/1"
# 7% of the 256 programs of a search.
_TAUGHT = 18
_STEPS, _KEEP, _TEN = 24, 4, 10
Choices = dict[str, list[gate.Chosen]]


def board_programs(data: Sequence[Path]) -> dict[str, list[MeasuredProgram]]:
    """The timed programs of each board.

    Raises:
        UserError: there are none.
    """
    programs = {}
    for board in modelled_board_names():
        paths = [one / f"{board}.jsonl{end}" for one in data for end in ("", ".gz")]
        own = [program for path in paths if path.is_file() for program in current_programs(path)]
        if own:
            programs[board] = own
    if not programs:
        raise UserError("no programs of modelled boards there: collect with research.modelled_boards")
    return programs


def described_tasks(
    programs: Mapping[str, Sequence[MeasuredProgram]], folder: Path
) -> dict[str, list[RecordedTask]]:
    """The tasks of each board as the language model reads them, lowered once for all and kept in a folder."""
    missing = [board for board in programs if not (folder / f"{board}.tasks.jsonl").is_file()]
    if missing:
        profiles = {board: profile_of_modelled(modelled_board(board)) for board in missing}
        networks = sorted({one.model for board in missing for one in programs[board]})
        spaces = lowered(networks, profiles[missing[0]])
        for board in missing:
            write_tasks(folder / f"{board}.tasks.jsonl", recorded(programs[board], spaces, profiles[board]))
    return {board: read_tasks(folder / f"{board}.tasks.jsonl") for board in programs}


def halves(tasks: Sequence[RecordedTask]) -> list[tuple[list[RecordedTask], list[RecordedTask]]]:
    """Tasks that teach and tasks that are judged, by network, one way and the other."""
    networks = sorted({one.model for one in tasks}, key=lambda name: random.Random(name).random())
    parts = [[one for one in tasks if one.model in networks[start::2]] for start in (0, 1)]
    return [(parts[0], parts[1]), (parts[1], parts[0])]


def few(task: RecordedTask, generator: random.Random) -> RecordedTask:
    """A task with as many of its programs as a new board has measured, drawn at random."""
    count = len(task.programs)
    kept = sorted(generator.sample(range(count), min(_TAUGHT, count)))
    fastest = task.example.programs[kept[0]][1]
    example = replace(
        task.example,
        programs=tuple(
            (task.example.programs[one][0], task.example.programs[one][1] / fastest) for one in kept
        ),
        estimates=tuple(task.example.estimates[one] for one in kept),
    )
    return replace(task, example=example, programs=tuple(task.programs[one] for one in kept))


class Learned:
    """T_hat as some tasks teach it.

    Args:
        taught: of the board.
        others: of other boards, by their names.
    """

    def __init__(
        self, taught: Sequence[RecordedTask], others: Mapping[str, Sequence[RecordedTask]] | None = None
    ) -> None:
        known = [
            replace(one, board=board)
            for board, tasks in (others or {}).items()
            for one in observations(tasks)
        ]
        self._processes = LearnedEstimate([*known, *observations(taught)]).processes

    def prediction(self, task: RecordedTask) -> Prediction:
        """Of the programs of a task; T where its rule taught nothing."""
        process = self._processes.get(task.rule)
        if process is None:
            logs = np.log([one.estimate_s for one in task.programs])
            return Prediction(logs, np.zeros((len(logs), len(logs))))
        return process.predict(task.programs)

    def mean(self, task: RecordedTask) -> list[float]:
        """Logarithms of T_hat of the programs of a task."""
        return [float(one) for one in self.prediction(task).mean]

    def order(self, task: RecordedTask) -> list[float]:
        """An order of the programs of a task: the cautious choice comes first."""
        found = self.prediction(task)
        first = cautious_choice(found, in_turn(task, [one.estimate_s for one in task.programs])[0])
        logs = self.mean(task)
        logs[first] = min(logs) - 1.0
        return logs

    def deployed(self, task: RecordedTask) -> list[float]:
        """Logarithms of T_hat where the evidence convinces, else of the estimate."""
        process = self._processes.get(task.rule)
        if process is not None and evidence_of(process).convinces:
            return self.mean(task)
        return [math.log(one.estimate_s) for one in task.programs]


def in_turn(task: RecordedTask, values: Sequence[float]) -> list[int]:
    """The programs of a task, the least value first; those of equal value have an order of their own.

    A task has the fastest programs first: without that, equal estimates would be in the order of the times.
    """
    places = list(range(len(values)))
    random.Random(task.programs[0].task).shuffle(places)
    return sorted(places, key=lambda place: values[place])


def in_order(tasks: Sequence[RecordedTask], logs: Sequence[Sequence[float]]) -> list[gate.Chosen]:
    """What is chosen of all programs in the order of some logarithms."""
    found = []
    for task, own in zip(tasks, logs, strict=True):
        slower = np.array([one for _, one in task.example.programs])[in_turn(task, own)]
        found.append(gate.Chosen(float(slower[0] / slower.min()), float(slower[:_TEN].min() / slower.min())))
    return found


def estimate_arms(
    taught: Sequence[RecordedTask],
    judged: Sequence[RecordedTask],
    others: Mapping[str, Sequence[RecordedTask]],
    seed: int,
) -> Choices:
    """The arms without a language model.

    Args:
        taught: tasks of the new board with what was measured of them.
        judged: tasks of the new board of which nothing was measured.
        others: tasks of the other boards.
        seed: of shuffled times.
    """
    generator = random.Random(seed)

    def mixed(tasks: Sequence[RecordedTask]) -> list[RecordedTask]:
        return [shuffled(one, generator) for one in tasks]

    tasks, networks = {one.programs[0].task for one in judged}, {one.model for one in judged}
    apart = {
        board: [one for one in own if one.programs[0].task not in tasks and one.model not in networks]
        for board, own in others.items()
    }
    learned, fleet = Learned(taught), Learned(taught, others)
    orders: dict[str, Callable[[RecordedTask], list[float]]] = {
        "t": lambda task: [math.log(one.estimate_s) for one in task.programs],
        "that": learned.order,
        "that_mean": learned.mean,
        "deployed": learned.deployed,
        "boards": Learned(taught, apart).order,
        "fleet": fleet.order,
        "fleet_alone": Learned([], others).order,
        "that_shuffled": Learned(mixed(taught)).order,
        "fleet_shuffled": Learned(mixed(taught), {name: mixed(own) for name, own in others.items()}).order,
    }
    return {
        **{arm: in_order(judged, [order(task) for task in judged]) for arm, order in orders.items()},
        "chance_t": by_chance(judged),
        "chance_that": by_chance(ranked_by(judged, [learned.mean(task) for task in judged])),
        "chance_fleet": by_chance(ranked_by(judged, [fleet.mean(task) for task in judged])),
        "fastest": [gate.Chosen(1.0, 1.0)] * len(judged),
    }


def model_arms(taught: Sequence[RecordedTask], judged: Sequence[RecordedTask], seed: int) -> Choices:
    """The arms of the language model as shipped, and as the records teach it."""
    vocabulary = Vocabulary()
    learned = Learned(taught)
    by_that = ranked_by(judged, [learned.mean(task) for task in judged])

    def choices(checkpoint: Path, tasks: Sequence[RecordedTask]) -> list[gate.Chosen]:
        model, _ = load_model(checkpoint, vocabulary)
        return gate.choices_of(model, vocabulary, [one.example for one in tasks])

    found = {"tlm_t": choices(SHIPPED, judged), "tlm_that": choices(SHIPPED, by_that)}
    wrong = [shuffled(one, random.Random(seed)) for one in taught]
    replay = read_replay(SHIPPED / REPLAY, vocabulary)
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as name:
        for arm, tasks in (("tuned", taught), ("shuffled", wrong)):
            options = FinetuneOptions(SHIPPED, Path(name) / arm, steps=_STEPS, keep=_KEEP, seed=seed)
            examples, new = [one.example for one in tasks], options.out / "new"
            # Without the models that only the gate looks at.
            fitting = Fitting(options, examples, replay, LocalEngine(), 1)
            fitting.trained("whole", examples, new, lambda _: None)
            found["tuned_t" if arm == "tuned" else "tuned_shuffled"] = choices(new, judged)
            if arm == "tuned":
                found["tuned_that"] = choices(new, by_that)
    return found


def judged_lines(
    board: str, boards: Mapping[str, Sequence[RecordedTask]], seed: int, with_model: bool
) -> list[dict[str, Any]]:
    """What every arm chooses for each task of a board, taught by 18 programs a task of other networks."""
    lines = []
    others = {name: own for name, own in boards.items() if name != board}
    for teach, judged in halves(boards[board]):
        taught = [few(one, random.Random(f"{seed}/{one.programs[0].task}")) for one in teach]
        arms = estimate_arms(taught, judged, others, seed)
        if with_model:
            arms |= model_arms(taught, judged, seed)
        for number, task in enumerate(judged):
            times = {arm: (own[number].first, own[number].best) for arm, own in arms.items()}
            about = {"board": board, "task": task.programs[0].task, "model": task.model, "rule": task.rule}
            lines.append(about | {"seed": seed, "times": times})
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Make each board the new one and print the ratios."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.modelled_boards.new_board", description=__doc__
    )
    parser.add_argument("--data", type=Path, nargs="+", required=True, metavar="FOLDER")
    parser.add_argument("--folder", type=Path, required=True, help="keeps what is made; created")
    parser.add_argument("--seeds", type=int, default=3, help="draws of the records that teach")
    parser.add_argument("--language-model", action="store_true", help="its arms too; takes much longer")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    about = heading("benchmarks.modelled_boards.new_board", SCHEMA, arguments)
    torch.set_num_threads(1)
    options.folder.mkdir(parents=True, exist_ok=True)
    programs = board_programs(options.data)
    if options.language_model:
        boards = described_tasks(programs, options.folder)
    else:
        boards = {board: undescribed(own) for board, own in programs.items()}
    lines: list[dict[str, Any]] = []
    for seed in range(options.seeds):
        for board, tasks in boards.items():
            with_model = options.language_model and seed == 0
            kept = options.folder / f"{board}.{seed}.{'model' if with_model else 'estimate'}.json"
            if not kept.is_file():
                made = judged_lines(board, boards, seed, with_model)
                kept.write_text(json.dumps(made))
            lines += json.loads(kept.read_text())
            print(board, seed, len(tasks), "tasks", flush=True)
    found = figures_of(lines)
    counts = {
        board: {
            "tasks": len(tasks),
            "programs": sum(len(one.programs) for one in tasks),
            "networks": len({one.model for one in tasks}),
        }
        for board, tasks in boards.items()
    }
    write_result(options.json, about | {"boards": counts, "ratios": found, "share_of_best": shares_of(lines)})
    for measured, ratios in found.items():
        for ratio, by_board in ratios.items():
            one = by_board["all"]
            bounds = f"{one['value']:.3f} ({one['low']:.3f} to {one['high']:.3f})"
            print(measured, ratio, f"{bounds} median {one['median']:.3f} n {one['n']}")


if __name__ == "__main__":
    main()
