r"""What a fine-tuned language model writes in whole spaces of simulated boards, beside chance.

    python -m benchmarks.gate.proposals --folder FOLDER [--seeds N...] [--start CHECKPOINT] [--json F]

The boards, their tasks and the network are those of `python -m benchmarks.gate --kinds simulated`: half of a
board's tasks teach the network and T_hat, the other half says what is true. Nothing is drawn from recorded
programs: all arms write programs of the whole space of a task, whose true times the simulated board knows.
Each arm writes 32 programs of a task and orders them by an estimate, T (`_t`) or T_hat (`_that`), with
variety as in a deployment:

    random32            uniformly drawn
    infilled_random32   24 uniformly drawn; then 8 programs that differ in one decision from the best of them
                        by the estimate, uniformly drawn
    before32            of the network before it was fine-tuned, as a deployment lets it write
    tlm32               of the fine-tuned network, likewise (`host.tlm.proposer`)

`ratios` has, by number of measurements, the true time of the second arm over that of the first: above 1, the
first is faster. With 0 measurements it is that of the first program, with 10 that of the fastest of the first
ten. `large` has the same for the spaces with more than 100,000 legal programs.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from benchmarks.gate.network import small_network
from benchmarks.gate.recorded import RecordedTask, observations
from benchmarks.gate.settings import check_settings
from benchmarks.gate.simulated import TASKS, simulated_tasks
from benchmarks.learning.__main__ import figures_of
from benchmarks.modelled_boards.choices import programs_in
from benchmarks.modelled_boards.draws import Program, by_chance, written
from benchmarks.modelled_boards.figures import Judged
from benchmarks.result_file import add_json_option, heading, write_result
from host.execution import LocalEngine
from host.learned_estimate.estimate import LearnedEstimate
from host.model import DeviceProfile
from host.schedules import DesignSpace
from host.schedules.proposer import Estimate
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.proposer import Tlm
from host.tlm.training.fitting import FinetuneOptions, Fitting, replay_of
from host.tlm.training.replay import read_replay
from research.figures.finetuning import BOARD, tasks_of, truth_of
from research.pretraining.boards import board_of

SCHEMA = "edgetlm.proposals/1"
# Measurements a task; with 0, the first program is taken.
BUDGETS = (0, 10)
PAIRS = (
    *(
        (f"{faster}_{rank}", f"{slower}_{rank}")
        for rank in ("t", "that")
        for faster, slower in (
            ("tlm32", "random32"),
            ("tlm32", "infilled_random32"),
            ("tlm32", "before32"),
            ("before32", "random32"),
            ("infilled_random32", "random32"),
        )
    ),
    ("random32_that", "random32_t"),
    ("tlm32_that", "random32_t"),
)


def fine_tuned(start: Path, tasks: Sequence[RecordedTask], seed: int, folder: Path) -> Path:
    """A checkpoint that learned all of some tasks, as at the end of a tuning; no gate judges it."""
    options = FinetuneOptions(start, folder, seed=seed)
    examples = [one.example for one in tasks]
    replay = read_replay(replay_of(options), Vocabulary())
    fitting = Fitting(options, examples, replay, LocalEngine(), options.steps_for(len(examples)))
    fitting.trained("whole", examples, folder / "model", lambda advance: None)
    fitting.finish()
    return folder / "model"


def programs_of_arms(
    space: DesignSpace, models: Mapping[str, Tlm], learned: LearnedEstimate, seed: int
) -> dict[str, list[Program]]:
    """The programs of each arm in the order in which they would be measured.

    Args:
        space: of the task.
        models: language models by name of the arm.
        learned: T_hat.
        seed: of the draws.
    """
    profile = DeviceProfile("simulated", board_of(BOARD), space.hardware, space.threads)
    estimates: dict[str, Estimate] = {"t": DesignSpace.estimate_s, "that": learned.cost_s}
    found = by_chance(space, estimates, seed)
    for name, model in models.items():
        for rank, estimate in estimates.items():
            found[f"{name}32_{rank}"] = written(model, space, profile, estimate, seed)
    return found


def judged_board(seed: int, base: Path, folder: Path) -> tuple[dict[int, list[Judged]], dict[str, float]]:
    """Seconds of what each arm ends with, by number of measurements, and the sizes of the spaces.

    Args:
        seed: of the board, its tasks, the training and the draws.
        base: the network that is fine-tuned.
        folder: keeps the tasks.
    """
    order = simulated_tasks(seed, folder / f"simulated.{seed}.tasks.jsonl")
    random.Random(f"gate/{seed}").shuffle(order)
    teach, truth = order[: len(order) // 2], order[len(order) // 2 :]
    learned, seconds_of = LearnedEstimate(observations(teach)), truth_of(seed)
    spaces = {one.task.workload_hash: one for one in tasks_of(BOARD, seed, TASKS)}
    judged: dict[int, list[Judged]] = {budget: [] for budget in BUDGETS}
    sizes = {}
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as scratch:
        models = {"before": Tlm(base), "tlm": Tlm(fine_tuned(base, teach, seed, Path(scratch)))}
        for one in truth:
            space = spaces[one.programs[0].task]
            key = f"{seed}/{space.task.workload_hash}"
            sizes[key] = programs_in(space)
            arms = programs_of_arms(space, models, learned, seed)
            for budget in BUDGETS:
                seconds = {
                    arm: min(seconds_of(space, values) for values in programs[: max(1, budget)])
                    for arm, programs in arms.items()
                }
                judged[budget].append(Judged(f"board {seed}", "", key, space.rule.name, seconds))
    return judged, sizes


def main(arguments: Sequence[str] | None = None) -> None:
    """Judges the arms on each board and prints the ratios."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gate.proposals", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="keeps tasks and network; created")
    parser.add_argument("--seeds", type=int, nargs="+", default=[6, 7], help="of the boards")
    parser.add_argument("--start", type=Path, help="a checkpoint; a small network of its own if left out")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    about = heading("benchmarks.gate.proposals", SCHEMA, arguments)
    torch.set_num_threads(1)
    options.folder.mkdir(parents=True, exist_ok=True)
    base = options.start or small_network(options.folder / "network")
    settings = check_settings(options.folder, base)
    judged: dict[int, list[Judged]] = {budget: [] for budget in BUDGETS}
    sizes: dict[str, float] = {}
    for seed in options.seeds:
        found, own = judged_board(seed, base, options.folder)
        for budget, many in found.items():
            judged[budget] += many
        sizes |= own
        figures = {"seeds": options.seeds, "settings": settings, **figures_of(judged, sizes, PAIRS)}
        write_result(options.json, about | figures)
    for budget, by_pair in figures["ratios"].items():
        for pair, by_board in by_pair.items():
            one = by_board["all"]
            print(f"{budget:>2s} {pair:44s} {one['geomean']:.3f} ({one['low']:.3f} to {one['high']:.3f})")


if __name__ == "__main__":
    main()
