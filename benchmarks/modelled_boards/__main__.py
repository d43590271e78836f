"""First programs on modelled boards that taught nothing, or little: `python -m benchmarks.modelled_boards`.

    python -m benchmarks.modelled_boards --data FOLDER [--models NAME...] [--tasks N] [--seeds N] [--json F]

FOLDER has programs of each board, BOARD.jsonl or BOARD.jsonl.gz (`python -m research.modelled_boards`), of
networks that are not judged here. Every board is the new one in turn: its estimate has learned from records
of the other boards, of its own, or of both. The tasks are of MODELS, less those that a network of the data
has too. Each arm chooses a program for each task without measuring, by the learned estimate whatever the
evidence says; the modelled board gives its time:

    gensor_t         Gensor's first, by the estimate T
    gensor_that_X    of 24 programs of Gensor by the learned estimate, taught by 10, 50 or 200 records of the
                     board (own_N), by all of the others (others), or by both (others_N)
    gensor_that_shuffled   the same with 200 records whose times are shuffled within tasks
    search_that      what the product does: the learned estimate (others_200) searches the space
    random_first     a uniformly random program
    random32_t, random32_that    of 32 uniformly random programs the best by T, or by T_hat (others_200)
    infilled_random32_t, infilled_random32_that    of 24 of them, and 8 near the best of these by each
    tlm_likelihood   the language model's likeliest
    tlm32_t, tlm32_that    the best by each of 32 programs that the model writes as in a deployment

Nothing of this machine is timed: the figures are the same on any.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.learned_estimate.withheld import observations_of
from benchmarks.modelled_boards.choices import BoardEstimates, chosen_programs, of_board
from benchmarks.modelled_boards.figures import RATIOS, Judged, ratios, shares
from benchmarks.modelled_boards.judging import Judge, judged_tasks
from benchmarks.result_file import add_json_option, heading, write_result
from host.errors import UserError
from host.learned_estimate.observation import Observation
from host.tlm.model.checkpoints import SHIPPED
from host.tlm.proposer import Tlm
from research.collection.collect import tasks_in
from research.collection.dataset import current_programs
from research.modelled_boards.boards import modelled_board, modelled_board_names
from research.modelled_boards.timer import ModelledTimer, profile_of_modelled

SCHEMA = "edgetlm.modelled_boards/1"
_MODELS = ("mobilenetv2", "vit-tiny", "bert-tiny", "mobilevit-xs")


def read_data(folder: Path) -> dict[str, list[Observation]]:
    """The programs in a folder, by board.

    Raises:
        UserError: there are programs of fewer than two boards.
    """
    found = {}
    for board in modelled_board_names():
        for path in (folder / f"{board}.jsonl", folder / f"{board}.jsonl.gz"):
            if path.is_file():
                found[board] = observations_of(current_programs(path))
    if len(found) < 2:
        raise UserError(f"{folder} has programs of {len(found)} boards: collect from two at least")
    return found


def judge_board(
    board: str,
    data: Mapping[str, Sequence[Observation]],
    models: Sequence[Path],
    options: argparse.Namespace,
    folder: Path,
) -> list[Judged]:
    """Every arm on the tasks of some networks, with a board as the new one."""
    modelled = modelled_board(board)
    profile = profile_of_modelled(modelled)
    taught = {one.program.task for known in data.values() for one in known}
    tasks = judged_tasks(tasks_in(models, profile), taught, options.tasks, 1e6 * options.most_mflop)
    others = of_board(data, board)
    judge = Judge(ModelledTimer(modelled, folder))
    learned = [BoardEstimates(data.get(board, []), others, seed) for seed in range(options.seeds)]
    model = Tlm(SHIPPED)
    found = []
    for task in tasks:
        space = task.space
        for seed, estimates in enumerate(learned):
            chosen = chosen_programs(space, profile, estimates, model, seed)
            key, rule = space.task.workload_hash, space.rule.name
            seconds = judge.seconds(space, chosen)
            found.append(Judged(board, task.model, key, rule, seconds))
        print(
            board, task.model, space.task.name, {a: f"{s * 1e6:.1f}" for a, s in seconds.items()}, flush=True
        )
    return found


def _microseconds(seconds: Mapping[str, float]) -> dict[str, float]:
    return {arm: round(1e6 * time, 1) for arm, time in seconds.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Makes each board the new one in turn and prints the ratios."""
    parser = argparse.ArgumentParser(prog="benchmarks.modelled_boards", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", nargs="+", default=list(_MODELS), help="names of the zoo")
    parser.add_argument("--boards", nargs="+", help="to judge; all of the data if left out")
    parser.add_argument("--tasks", type=int, default=12, help="of all networks, on each board")
    parser.add_argument("--most-mflop", type=float, default=10.0, help="leave larger tasks out")
    parser.add_argument("--seeds", type=int, default=3)
    add_json_option(parser)
    options = parser.parse_args(arguments)
    from research.models.export import main as export

    about = heading("benchmarks.modelled_boards", SCHEMA, arguments)
    data = read_data(options.data)
    judged: list[Judged] = []
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as name:
        folder = Path(name)
        export([*options.models, "-o", str(folder), "--format", "onnx"])
        models = [folder / f"{model}.onnx" for model in options.models]
        for board in options.boards or sorted(data):
            judged += judge_board(board, data, models, options, folder)
            figures = {
                "models": options.models,
                "seeds": options.seeds,
                "records": {board: len(known) for board, known in sorted(data.items())},
                "tasks": len({(one.board, one.task) for one in judged}),
                "ratios": ratios(judged, RATIOS),
                "share_of_best": shares(judged),
            }
            write_result(options.json, about | figures)
    for ratio, by_board in figures["ratios"].items():
        print(ratio, {board: _shown(one) for board, one in by_board.items()})
    print("share of best", figures["share_of_best"])


def _shown(one: Mapping[str, float]) -> str:
    low, high = one["low"], one["high"]
    bounds = f" [{low:.3f}, {high:.3f}]" if low is not None and high is not None else ""
    return f"{one['geomean']:.3f}{bounds}"


if __name__ == "__main__":
    main()
