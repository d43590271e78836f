"""What learning adds on this machine, beside its absence and beside chance: `python -m benchmarks.learning`.

    python -m benchmarks.learning --data FILE [--models NAME...] [--tasks N] [--least-space N]
        [--bands] [--restrict avx2] [--files FOLDER] [--json F] [--resume] [--minutes N]

The tasks are of networks that are held out of the language model's training, less those that FILE has too;
with `--least-space`, those with more legal programs than that (`python -m benchmarks.learning.space_sizes`).
With `--bands`, chains of convolutions in bands of rows are among them where the passes take none, as plans
try them.
FILE has measured programs of this machine (`sdk tlm collect`), which teach the learned
estimate T_hat. For each task and seed, every arm orders its programs without measuring (`arms.py`). What a
program takes is measured with the programs of all arms in interleaved rounds, weights out of the caches.

With 0 measurements a task, an arm ends with its first program. With n of them it ends with the fastest of
its first n programs and of the first of Gensor's by T, which a tuning measures in any case. The arms whose
names begin with `tuned` choose their programs in batches by the times of those before (`tuned.py`), as a
tuning does; their first program is the one that a deployment begins with. With `--budgets 0` they are left
out, and first programs alone are measured.

`ratios` has, for each pair of arms and each number of measurements a task, the time of the second arm over
that of the first: above 1, the first is faster. `large` has the same for the spaces with more than 100,000
legal programs (by the legal share of random values). `share_of_best` is the time of the fastest of all
programs that were measured of the task over that of each arm, `worst_share` that of the task for which it is
least.

`tasks_judged` has the times of each task. With `--resume`, a result of the same command and commit goes on
with the tasks that it has not, and with `--minutes` no further task is begun after so long.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.learned_estimate.withheld import observations_of
from benchmarks.learning.arms import REFERENCE, programs_of_arms
from benchmarks.learning.rows import TaskRow, judged_of
from benchmarks.learning.tuned import tuned_arms
from benchmarks.modelled_boards.choices import programs_in
from benchmarks.modelled_boards.draws import Program
from benchmarks.modelled_boards.figures import Judged, ratios, shares, worst
from benchmarks.modelled_boards.judging import Judge, judged_tasks
from benchmarks.result_file import add_json_option, figures_so_far, heading, write_result
from host.compile.device_profile import profile_of
from host.errors import UserError
from host.learned_estimate.estimate import LearnedEstimate
from host.learned_estimate.observation import Observation
from host.model import DeviceProfile
from host.schedules import DesignSpace
from host.tlm.model.checkpoints import SHIPPED
from host.tlm.proposer import Tlm
from host.transport import connect
from research.collection.collect import BenchTimer, CollectedTask, tasks_in
from research.collection.dataset import current_programs
from research.evaluation.bench import MeasurePlan, open_bench, restricted

SCHEMA = "edgetlm.learning/1"
# Held out of the language model's training (research/pretraining/held_out.json).
_MODELS = ("mobilenetv2", "resnet50", "bert-base", "gpt2", "dcgan", "resnext50")
PAIRS = (
    ("gensor_that", "gensor_t"),
    ("search_that", "gensor_t"),
    ("random", "gensor_t"),
    ("random32_t", "gensor_t"),
    ("random32_that", "random32_t"),
    ("infilled_random32_t", "random32_t"),
    ("infilled_random32_that", "random32_that"),
    ("exchanged_random32_that", "random32_that"),
    ("tlm_likelihood", "gensor_t"),
    ("tlm32_t", "gensor_t"),
    ("tlm32_t", "random32_t"),
    ("tlm32_t", "infilled_random32_t"),
    ("tlm32_that", "tlm32_t"),
    ("tlm32_that", "gensor_t"),
    ("tlm32_that", "random32_t"),
    ("tlm32_that", "random32_that"),
    ("tlm32_that", "infilled_random32_that"),
    ("tlm32_that", "exchanged_random32_that"),
    ("search_tlm_that", "gensor_t"),
    ("search_tlm_that", "search_that"),
    ("tuned_that", "gensor_t"),
    ("tuned_that", "gensor_that"),
    ("tuned_that", "tlm32_that"),
    ("tuned_that", "random32_that"),
    ("tuned_that", "tuned_chance_that"),
    ("tuned_that", "tuned_alone_that"),
    ("tuned_chance_that", "tuned_alone_that"),
    ("tuned_that", "tuned_t"),
)
# Measurements a task.
BUDGETS = (0, 1, 10, 32)
_LARGE = 100_000


def judged_arms(
    judge: Judge, space: DesignSpace, arms: Mapping[str, Sequence[Program]], budgets: Sequence[int]
) -> dict[int, dict[str, float]]:
    """Seconds of what each arm ends with, by the number of measurements; an arm that fails is left out.

    Args:
        judge: takes the times.
        space: of the task.
        arms: programs by arm, Gensor's by T among them.
        budgets: numbers of measurements.
    """
    most, reference = max(1, *budgets), arms[REFERENCE][0]
    judge.time(space, (program for programs in arms.values() for program in programs[:most]))
    found: dict[int, dict[str, float]] = {}
    for budget in budgets:
        found[budget] = {}
        for arm, programs in arms.items():
            measured = [*programs[:budget], reference] if budget else programs[:1]
            chosen = {str(number): one for number, one in enumerate(measured)}
            seconds = judge.seconds(space, chosen)
            if seconds:
                found[budget][arm] = min(seconds.values())
    return found


def figures_of(
    judged: Mapping[int, Sequence[Judged]],
    sizes: Mapping[str, float],
    pairs: Sequence[tuple[str, str]] = PAIRS,
) -> dict[str, Any]:
    """The figures by number of measurements, over all tasks and over those of large spaces.

    Args:
        judged: by number of measurements.
        sizes: programs of the space of each task.
        pairs: of arms that are compared.
    """
    large = {task for task, size in sizes.items() if size > _LARGE}
    found: dict[str, Any] = {"tasks": len(sizes), "large_spaces": len(large)}
    for name, kept in (("", set(sizes)), ("large", large)):
        part = {budget: [one for one in many if one.task in kept] for budget, many in judged.items()}
        known = [one for many in part.values() for one in many]
        figures = {
            "ratios": {str(budget): ratios(many, pairs) for budget, many in part.items() if many},
            "share_of_best": {str(budget): shares(many, known) for budget, many in part.items() if many},
            "worst_share": {str(budget): worst(many, known) for budget, many in part.items() if many},
        }
        found |= {name: figures} if name else figures
    return found


def measured_row(
    judges: tuple[Judge, Judge],
    task: CollectedTask,
    profile: DeviceProfile,
    known: Sequence[Observation],
    learned: LearnedEstimate,
    model: Tlm,
    seeds: int,
    budgets: Sequence[int],
) -> TaskRow:
    """Measures every arm on one task.

    Args:
        judges: take the times, and those that the tunings choose by.
        task: to be judged.
        profile: of the board.
        known: measured programs of other tasks.
        learned: from these.
        model: the language model.
        seeds: of what is drawn; all programs of an arm are measured for the first, and their spread is that
            over tasks.
        budgets: numbers of measurements.
    """
    judge, tuner = judges
    space = task.space
    found: dict[int, list[Mapping[str, float]]] = {budget: [] for budget in budgets}
    for seed in range(seeds):
        arms = programs_of_arms(space, profile, learned, model, seed)
        if not seed and max(budgets):
            arms |= tuned_arms(tuner, space, profile, known, model, arms, seed)
        for budget, seconds in judged_arms(judge, space, arms, budgets[: 1 if seed else None]).items():
            found[budget].append(seconds)
    return TaskRow(space.task.workload_hash, task.model, space.rule.name, programs_in(space), found)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.learning", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", nargs="+", default=list(_MODELS), help="names of the zoo")
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--least-space", type=float, default=0.0, help="leave smaller spaces out (programs)")
    parser.add_argument("--bands", action="store_true", help="chains in bands, too")
    parser.add_argument("--files", type=Path, help="folder of the networks' ONNX files; kept, and used again")
    parser.add_argument("--most-mflop", type=float, default=200.0, help="leave larger tasks out")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--restrict", default="", help="avx2: leave the newer instructions unused")
    parser.add_argument("--model", type=Path, default=SHIPPED, help="folder of the language model")
    parser.add_argument("--budgets", type=int, nargs="+", default=list(BUDGETS), help="measurements a task")
    parser.add_argument("--resume", action="store_true", help="keep what the result file has already")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no task after so long")
    add_json_option(parser)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures every arm on every task and prints the ratios."""
    options = _options(arguments)
    from research.models.export import main as export

    began, about = time.monotonic(), heading("benchmarks.learning", SCHEMA, arguments)
    kept = figures_so_far(options.json, about) if options.resume else {}
    rows = [TaskRow.read(one) for one in kept.get("tasks_judged", ())]
    with connect("local") as device, tempfile.TemporaryDirectory(prefix="edgetlm-") as name:
        folder = Path(name)
        files = options.files or folder
        export([*options.models, "-o", str(files), "--format", "onnx"])
        profile = restricted(profile_of(device, options.threads), device.describe(), options.restrict)
        board = f"{profile.board.name} {options.restrict}".strip()
        known = observations_of(current_programs(options.data))
        every = tasks_in([files / f"{model}.onnx" for model in options.models], profile, options.bands)
        taught = {one.program.task for one in known}
        tasks = judged_tasks(every, taught, options.tasks, 1e6 * options.most_mflop, options.least_space)
        if not tasks:
            raise UserError(
                "no task of these models is left to judge: name other models, raise --most-mflop, or lower "
                "--least-space"
            )
        done = {row.task for row in rows}
        left = [task for task in tasks if task.space.task.workload_hash not in done]
        learned, model = LearnedEstimate(known), Tlm(options.model)
        figures: dict[str, Any] = dict(kept)
        with open_bench(device, profile, folder, MeasurePlan()) as bench:
            judges = Judge(BenchTimer(bench)), Judge(BenchTimer(bench))
            for number, task in enumerate(left):
                if time.monotonic() - began > 60.0 * options.minutes:
                    print(f"{len(left) - number} tasks are left: the same command with --resume goes on")
                    break
                row = measured_row(
                    judges, task, profile, known, learned, model, options.seeds, options.budgets
                )
                rows.append(row)
                print(task.model, task.space.task.name, row.rule, f"{row.programs:.3g} programs", flush=True)
                figures = {
                    "models": options.models,
                    "seeds": options.seeds,
                    "records": len(known),
                    "board": board,
                    "least_space": options.least_space,
                    "bands": options.bands,
                    **figures_of(
                        judged_of(rows, board, options.budgets), {one.task: one.programs for one in rows}
                    ),
                    "tasks_judged": [one.data() for one in rows],
                }
                write_result(options.json, about | figures)
    for line in lines_of(figures):
        print(line)


def lines_of(figures: Mapping[str, Any]) -> list[str]:
    """A line for each number of measurements and ratio, over all boards."""
    found = []
    for budget, by_pair in figures.get("ratios", {}).items():
        for pair, by_board in by_pair.items():
            one = by_board["all"]
            bounds = f"({one['low']:.3f} to {one['high']:.3f})" if one["low"] is not None else ""
            found.append(f"{budget:>2s} {pair:30s} {one['geomean']:.3f} {bounds} {one['median']:.3f}")
    return found


if __name__ == "__main__":
    main()
