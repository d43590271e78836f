"""A language model that learned by search by T_hat, in large spaces of simulated boards: nothing is measured.

    python -m benchmarks.learning.expert --teach FILES... --judge FILES... --folder FOLDER
        [--boards NAME:SEED...] [--tasks N] [--json F] [--resume] [--minutes N]

FILES are ONNX files of networks. The boards are those of `benchmarks.learning.simulated`; "-gpu" behind a
name is the board's GPU, whose tasks of the rule `cuda_tiled` have large spaces. On each board the tasks of
the rule `tiled` (`cuda_tiled`) of the networks that teach are measured, 24 programs of each, and teach T_hat.
Then the language model is trained on N tasks by expert iteration (`host.tlm.training.expert_iteration`):
tasks of these networks, parts of their chains, and drawn ones; a search by T_hat finds what it learns. Tasks
that read as one that is judged are left out. `measured` is the same model trained as many steps on the
measured programs.

The chains in bands of the other networks (on a GPU their tasks with more than 100,000 programs) are judged by
the true time of the first program. All arms rank by T_hat:

    random32                32 uniform programs
    infilled_random32       24, and 8 near the best of them
    exchanged_random32      24, and 8 put together of the parts of 32 by T_hat
    MODEL32                 what a deployment lets the model write: on chains half of the parts are uniform
    MODEL_unmixed32         no part is uniform; likelihood does not count
    MODEL_weighted32        the same, where a likelier program counts as a faster one
    MODEL_likelihood        the likeliest program, T_hat does not rank
    parts_of_N              for each part the best of N uniform ones by T_hat
    optimum                 for each part what a search by T_hat finds from the best of these

MODEL is `shipped`, `measured`, `expert`, or `round1`, the same after the first round. `parts_of_N` and
`optimum` say what any proposer could reach by this T_hat. `expected` has T_hat of each arm's program over
that of `optimum`. FOLDER keeps what was trained: an interrupted training goes on, and with `--resume` a
result goes on with the boards that it has not.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.learning.__main__ import figures_of
from benchmarks.learning.simulated import SimulatedBoard
from benchmarks.learning.space_sizes import LARGE, board_and_type, spaces_of
from benchmarks.modelled_boards.choices import programs_in
from benchmarks.modelled_boards.draws import Program, by_chance, written
from benchmarks.modelled_boards.figures import Judged
from benchmarks.result_file import add_json_option, figures_so_far, heading, write_result
from host.errors import LoweringError, ScheduleError, UserError
from host.execution import LocalEngine
from host.gensor import Gensor
from host.importers import load_here as load
from host.learned_estimate.estimate import LearnedEstimate
from host.learned_estimate.observation import Observation, values_of
from host.learned_estimate.search import best_found, descended
from host.model import DeviceProfile
from host.schedules import DesignSpace, space_for
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.card import CARD
from host.tlm.model.checkpoints import SHIPPED
from host.tlm.proposer import Tlm
from host.tlm.ranking import Ranking
from host.tlm.training.expert_iteration import Rounds, apart, learned_by_search, lesson_of, prompt_of
from host.tlm.training.fitting import FinetuneOptions, Fitting, replay_of
from host.tlm.training.replay import read_replay
from research.pretraining.dataset import lowered_tasks
from research.pretraining.operators import draw_operator
from targets import Board

SCHEMA = "edgetlm.expert_iteration/1"
_BOARDS = (
    "raspberry_pi_4:11",
    "x86_64-v4:12",
    "jetson_orin_nano-gpu:13",
    "raspberry_pi_4:14",
    "x86_64-v3:15",
    "jetson_orin_nano-gpu:16",
)
_MODELS = ("shipped", "measured", "expert")
# Uniform draws of each part of which the best are put together.
_DRAWS = (32, 128, 1024)
_CHANCE = ("random32_that", "infilled_random32_that", "exchanged_random32_that")
PAIRS = (
    *(
        (f"{name}{way}32_that", other)
        for name in ("expert", "measured", "shipped")
        for way in ("", "_unmixed", "_weighted")
        for other in _CHANCE
    ),
    *((f"expert{way}32_that", f"shipped{way}32_that") for way in ("", "_unmixed", "_weighted")),
    *((f"expert{way}32_that", f"measured{way}32_that") for way in ("", "_unmixed", "_weighted")),
    ("expert_unmixed32_that", "round1_unmixed32_that"),
    ("exchanged_random32_that", "random32_that"),
    ("expert_likelihood", "random32_that"),
    ("expert_likelihood", "shipped_likelihood"),
    *(("expert32_that", f"parts_of_{count}_that") for count in _DRAWS),
    *((f"parts_of_{count}_that", "exchanged_random32_that") for count in _DRAWS),
    ("optimum_that", "expert32_that"),
    *(("optimum_that", other) for other in _CHANCE),
    ("optimum_that", "expert_unmixed32_that"),
    ("optimum_that", "expert_weighted32_that"),
    ("optimum_that", "gensor_t"),
)


@dataclass(frozen=True, eq=False)
class Tasks:
    """The tasks of one declared board.

    Attributes:
        measured: that teach T_hat.
        searched: more that the model learns by search.
        judged: with large spaces, with the network of each.
    """

    measured: tuple[DesignSpace, ...]
    searched: tuple[DesignSpace, ...]
    judged: tuple[tuple[str, DesignSpace], ...]


def tasks_of(teach: Sequence[Path], judge: Sequence[Path], board: Board, most: int, drawn: int) -> Tasks:
    """The tasks of networks on a board, and drawn ones.

    Args:
        teach: networks that teach.
        judge: networks whose large spaces are judged.
        board: to make programs for.
        most: judged tasks, evenly of the networks.
        drawn: operators that are drawn for tasks that are searched.
    """
    in_bands = board.hardware.gpu is None
    rule = "tiled" if in_bands else "cuda_tiled"

    def spaces(path: Path) -> list[DesignSpace]:
        found = spaces_of(load(path, golden_cases=1), board, "", 1, in_bands)
        return list({one.task.workload_hash: one for one in found}.values())

    judged: dict[str, tuple[str, DesignSpace]] = {}
    for path in judge:
        large = [
            one
            for one in spaces(path)
            if (one.parts if in_bands else one.rule.name == rule and programs_in(one) > LARGE)
        ]
        large.sort(key=lambda one: one.task.workload_hash)
        for one in large[: -(-most // len(judge))]:
            judged.setdefault(one.task.workload_hash, (path.stem, one))
    taught = {one.task.workload_hash: one for path in teach for one in spaces(path)}
    known = [one for key, one in taught.items() if key not in judged]
    measured = [one for one in known if one.rule.name == rule]
    searched = [*apart([one for one in known if one.parts]), *_drawn(board, rule, drawn)]
    return Tasks(tuple(measured), tuple(searched), tuple(judged.values()))


def _drawn(board: Board, rule: str, count: int) -> Iterator[DesignSpace]:
    """The spaces of one rule of so many drawn operators."""
    generator = random.Random(f"expert/{board.name}")
    for _ in range(count):
        try:
            tasks = lowered_tasks(draw_operator(generator), board)
        except LoweringError:
            continue  # what a GPU does not have
        for task in tasks:
            try:
                space = space_for(task, board.hardware, 1)
            except ScheduleError:
                continue
            if space.rule.name == rule and space.decisions:
                yield space


def learned_tasks(tasks: Tasks, seed: int, most: int) -> list[DesignSpace]:
    """The tasks that a model learns by search; none reads as a part of one that is judged."""
    vocabulary = Vocabulary()
    held_out = {prompt_of(one, vocabulary) for one in apart([space for _, space in tasks.judged])}
    found = [one for one in (*tasks.measured, *tasks.searched) if prompt_of(one, vocabulary) not in held_out]
    random.Random(f"expert/{seed}").shuffle(found)
    return found[:most]


def measured_model(options: FinetuneOptions, known: Sequence[tuple[DesignSpace, Observation]]) -> Path:
    """The checkpoint of a model that learned measured programs, by fine-tuning without a gate.

    Args:
        options: of the training; `out` gets the folder of the checkpoint.
        known: measured programs with the spaces of their tasks.
    """
    folder, vocabulary = options.out / "measured", Vocabulary()
    if (folder / CARD).is_file():
        return folder
    by_task: dict[str, list[tuple[DesignSpace, Observation]]] = {}
    for space, one in known:
        by_task.setdefault(one.program.task, []).append((space, one))
    lessons = []
    for number, programs in enumerate(by_task.values()):
        space = programs[0][0]
        named = [
            ([(each.name, one.program.values[each.name]) for each in space.decisions], one.seconds)
            for _, one in programs
        ]
        lessons.append(lesson_of(number, prompt_of(space, vocabulary), named, vocabulary, options.keep))
    replay = read_replay(replay_of(options), vocabulary)
    fitting = Fitting(options, lessons, replay, LocalEngine(), options.steps)
    fitting.trained("measured", lessons, folder, lambda advance: None)
    fitting.finish()
    return folder


def parts_found(learned: LearnedEstimate, space: DesignSpace, seed: int) -> dict[str, list[Program]]:
    """Programs of the parts that T_hat puts first: of uniform draws, and of a search from their best."""
    parts = space.parts or (space,)
    found: dict[str, list[Program]] = {f"parts_of_{count}_that": [] for count in _DRAWS}
    optimum = []
    for number, part in enumerate(parts):
        generator = random.Random(f"parts/{seed}/{space.task.workload_hash}/{number}")
        drawn = [part.sample(generator) for _ in range(max(_DRAWS))]
        means = learned.means(part, drawn)
        for count in _DRAWS:
            found[f"parts_of_{count}_that"].append(drawn[int(np.argmin(means[:count]))])
        best = [drawn[one] for one in np.argsort(means, kind="stable")[:8]]
        optimum.append(descended(learned, part, best)[0])
    return {arm: [_joined(space, own)] for arm, own in {**found, "optimum_that": optimum}.items()}


def _joined(space: DesignSpace, parts: Sequence[Program]) -> Program:
    """The whole of some parts; what belongs to none has its last value."""
    values = [value for one in parts for value in one.values()]
    values += [one.choices[-1] for one in space.decisions[len(values) :]]
    return {one.name: value for one, value in zip(space.decisions, values, strict=True)}


def programs_of_arms(
    space: DesignSpace,
    profile: DeviceProfile,
    learned: LearnedEstimate,
    models: Mapping[str, Path],
    seed: int,
) -> dict[str, list[Program]]:
    """The programs of each arm, the first one first.

    Args:
        space: of the task.
        profile: of the board.
        learned: T_hat.
        models: checkpoints by name.
        seed: of what is drawn.
    """
    constructed = [values_of(one) for one in Gensor().propose(space, profile, (), 1, seed=0)]
    found = {"gensor_t": constructed, **by_chance(space, {"that": learned.cost_s}, seed)}
    found |= parts_found(learned, space, seed)
    for name, checkpoint in models.items():
        ways = {"": Tlm(checkpoint)}
        if space.parts:
            ways["_unmixed"] = Tlm(checkpoint, ranking=Ranking(likelihood=0.0), mixed=False)
            ways["_weighted"] = Tlm(checkpoint, mixed=False)
        else:
            ways["_unmixed"] = Tlm(checkpoint, ranking=Ranking(likelihood=0.0))
        for way, model in ways.items():
            found[f"{name}{way}32_that"] = written(model, space, profile, learned.cost_s, seed)
        found[f"{name}_likelihood"] = written(ways[""], space, profile, None, seed)
    return found


def judged_board(
    board: str, seed: int, tasks: Tasks, folder: Path, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Of each judged task the seconds of what each arm begins with, and what T_hat expects of it.

    Args:
        board: name of the declared board.
        seed: of the simulated one.
        tasks: of the board.
        folder: of the trained models.
        options: of the command line.
    """
    declared, _ = board_and_type(board)
    simulated = SimulatedBoard(board, seed)
    profile = DeviceProfile("simulated", declared, declared.hardware, 1)
    known = [(space, one) for space in tasks.measured for one in simulated.taught([space])]
    learned = LearnedEstimate([one for _, one in known])
    begun = time.process_time()
    how = FinetuneOptions(
        options.model, folder, steps=options.steps, seed=seed, resume=True, learning_rate=options.rate
    )
    rounds = Rounds(options.rounds)
    lessons = learned_tasks(tasks, seed, options.tasks)
    models = {"shipped": options.model}
    last = learned_by_search(how, rounds, lessons, partial(best_found, learned), lambda _: None)
    models["expert"] = last
    took = time.process_time() - begun
    print(f"{board} {seed}: {len(lessons)} tasks, {took:.0f} s of search and steps", flush=True)
    if options.rounds > 1:
        models["round1"] = last.with_name("round-1")
    if options.measured:
        steps = options.rounds * options.steps
        models["measured"] = measured_model(replace(how, steps=steps), known)
    rows = []
    for network, space in tasks.judged:
        arms = programs_of_arms(space, profile, learned, models, seed)
        least = learned.cost_s(space, arms["optimum_that"][0])
        rows.append(
            {
                "board": simulated.title,
                "model": network,
                "task": space.task.workload_hash,
                "rule": space.rule.name,
                "programs": float(f"{programs_in(space):.3g}"),
                "seconds": {arm: simulated.seconds(space, own[0]) for arm, own in arms.items()},
                "expected": {arm: learned.cost_s(space, own[0]) / least for arm, own in arms.items()},
            }
        )
    return rows


def result_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures over all tasks and boards, from the rows of `judged_board`."""
    judged = [
        Judged(one["board"], one["model"], f"{one['board']}/{one['task']}", one["rule"], one["seconds"])
        for one in rows
    ]
    sizes = {f"{one['board']}/{one['task']}": one["programs"] for one in rows}
    arms = {arm for one in rows for arm in one["expected"]}
    expected = {
        arm: float(np.exp(np.mean([np.log(one["expected"][arm]) for one in rows if arm in one["expected"]])))
        for arm in sorted(arms)
    }
    return {**figures_of({0: judged}, sizes, PAIRS), "expected": expected, "tasks_judged": list(rows)}


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.learning.expert", description=__doc__)
    parser.add_argument("--teach", nargs="+", type=Path, required=True, help="ONNX files")
    parser.add_argument("--judge", nargs="+", type=Path, required=True, help="ONNX files of other networks")
    parser.add_argument("--folder", type=Path, required=True, help="keeps what is trained; created")
    parser.add_argument("--boards", nargs="+", default=list(_BOARDS), help="declared board and seed of each")
    parser.add_argument("--tasks", type=int, default=64, help="that are learned by search")
    parser.add_argument("--drawn", type=int, default=24, help="operators that are drawn for more tasks")
    parser.add_argument("--judged", type=int, default=10, help="tasks that are judged of each board")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=100, help="of each round")
    parser.add_argument("--rate", type=float, default=2e-3, help="the largest learning rate")
    parser.add_argument("--measured", action="store_true", help="with the arm of measured programs")
    parser.add_argument("--model", type=Path, default=SHIPPED, help="folder of the language model")
    parser.add_argument("--resume", action="store_true", help="keep the boards that the result file has")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no board after so long")
    add_json_option(parser)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains and judges on every board and prints the ratios."""
    options, begun = _options(arguments), time.monotonic()
    torch.set_num_threads(1)
    about = heading("benchmarks.learning.expert", SCHEMA, arguments)
    figures: Mapping[str, Any] = figures_so_far(options.json, about) if options.resume else {}
    rows: list[dict[str, Any]] = list(figures.get("tasks_judged", ()))
    done = {one["board"] for one in rows}
    known: dict[str, Tasks] = {}
    for name, seed in (one.rsplit(":", 1) for one in options.boards):
        if f"{name} {seed}" in done or time.monotonic() - begun > 60.0 * options.minutes:
            continue
        if name not in known:
            board, _ = board_and_type(name)
            known[name] = tasks_of(options.teach, options.judge, board, options.judged, options.drawn)
        found = judged_board(name, int(seed), known[name], options.folder / f"{name}-{seed}", options)
        if not found:
            raise UserError(f"the networks to judge have no large spaces on {name}: name others")
        rows += found
        figures = result_of(rows)
        write_result(options.json, about | figures)
    for pair, by_board in figures.get("ratios", {}).get("0", {}).items():
        one = by_board["all"]
        bounds = f"({one['low']:.3f} to {one['high']:.3f})" if one["low"] is not None else ""
        own = " ".join(f"{board} {of['geomean']:.2f}" for board, of in by_board.items() if board != "all")
        print(f"{pair:52s} {one['geomean']:.3f} {bounds} median {one['median']:.3f}; {own}")


if __name__ == "__main__":
    main()
