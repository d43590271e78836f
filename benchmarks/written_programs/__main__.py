"""Programs of language models by the estimate.

    python -m benchmarks.written_programs NAME=FOLDER... --files ONNX_FOLDER [--json F]

The tasks are of networks that are held out of the training, on several boards; BOARD-gpu is the GPU of a
board, BOARD-gpu-fp16 the same with models in halves. Nothing is measured: times are those of the estimate T,
so that the figures say what a model has learned of the space, and not how good T is. Each arm has a program
for each task and seed:

    gensor            Gensor's first
    random            a uniformly random one
    random32          the best by T of 32 uniformly random ones
    NAME_likelihood   the likeliest of the model in FOLDER
    NAME_tlm32        the best by T of 32 programs of the model

`ratios` has the time of the second arm over that of the first, over tasks and boards, a mean over seeds;
above 1 the first is faster. `rules` has the same by rule.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

from benchmarks.modelled_boards.choices import DRAWN, random_programs
from benchmarks.modelled_boards.figures import ALL, Judged, ratios
from benchmarks.result_file import add_json_option, heading, write_result
from host.errors import EdgeError, ScheduleError
from host.gensor import Gensor
from host.importers import load_here as load
from host.learned_estimate.observation import values_of
from host.lowering import lower
from host.model import DeviceProfile
from host.options.compile import half_of
from host.schedules import DesignSpace, space_for
from host.tlm.proposer import Tlm
from research.pretraining.boards import board_of
from targets import Board

SCHEMA = "edgetlm.written_programs/1"
_NETWORKS = ("mobilenetv2", "dcgan")
_BOARDS = ("x86_64-v4", "raspberry_pi_4", "jetson_orin_nano-gpu", "jetson_orin_nano-gpu-fp16")


def spaces_of(path: Path, boards: Sequence[str], count: int) -> list[tuple[str, Board, DesignSpace]]:
    """Design spaces of some tasks of a network on each board, chosen by their hash."""
    model, found = load(path, golden_cases=1), []
    for name in boards:
        board = board_of(name.split("-gpu")[0], "-gpu" in name)
        spaces = []
        for task in lower(model, board, half=half_of("fp16" if name.endswith("-fp16") else "fp32")).tasks:
            try:
                spaces.append(space_for(task, board.hardware, 1))
            except ScheduleError:
                continue
        spaces = [space for space in spaces if space.decisions]
        spaces.sort(key=lambda space: space.task.workload_hash)
        random.Random(0).shuffle(spaces)
        found += [(name, board, space) for space in spaces[:count]]
    return found


def arms_of(space: DesignSpace, board: Board, models: dict[str, Tlm], seed: int) -> dict[str, float]:
    """Estimated seconds of each arm's program.

    Raises:
        EdgeError: the space has no legal program, or a model's language cannot express the task.
    """
    profile = DeviceProfile("written", board, board.hardware, space.threads)
    drawn = [space.estimate_s(values) for values in random_programs(space, seed)]
    found = {
        "gensor": Gensor().propose(space, profile, [], 1, 0)[0].estimate_s,
        "random": drawn[0],
        "random32": min(drawn),
    }
    for name, model in models.items():
        written = [values_of(one) for one in model.propose(space, profile, (), DRAWN, seed=seed)]
        estimates = [space.estimate_s(values) for values in written]
        found[f"{name}_likelihood"], found[f"{name}_tlm32"] = estimates[0], min(estimates)
    return found


def pairs_of(names: Sequence[str]) -> list[tuple[str, str]]:
    """What is compared with what, for some models; each of them with the first one."""
    found = [("random32", "gensor"), ("random", "gensor")]
    for name in names:
        tlm, likelihood = f"{name}_tlm32", f"{name}_likelihood"
        found += [(tlm, "random32"), (tlm, "gensor"), (likelihood, "gensor")]
    first, *others = names
    for name in others:
        found += [(f"{name}_{arm}", f"{first}_{arm}") for arm in ("tlm32", "likelihood")]
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Let the models write, and print the ratios."""
    parser = argparse.ArgumentParser(prog="benchmarks.written_programs", description=__doc__)
    parser.add_argument("models", nargs="+", metavar="NAME=FOLDER", help="language models")
    parser.add_argument("--files", type=Path, required=True, help="folder of the networks' ONNX files")
    parser.add_argument("--networks", nargs="+", default=list(_NETWORKS))
    parser.add_argument("--boards", nargs="+", default=list(_BOARDS))
    parser.add_argument("--tasks", type=int, default=6, help="of each network on each board")
    parser.add_argument("--seeds", type=int, default=2)
    add_json_option(parser)
    options = parser.parse_args(arguments)
    about = heading("benchmarks.written_programs", SCHEMA, arguments)
    folders = dict(one.split("=", 1) for one in options.models)
    # Without an estimate the likeliest program comes first.
    models = {name: Tlm(Path(folder)) for name, folder in folders.items()}
    judged: list[Judged] = []
    for network in options.networks:
        for name, board, space in spaces_of(options.files / f"{network}.onnx", options.boards, options.tasks):
            for seed in range(options.seeds):
                try:
                    seconds = arms_of(space, board, models, seed)
                except EdgeError as error:
                    print(f"{network} {space.task.name} on {name} is left out: {error}", flush=True)
                    break
                judged.append(Judged(name, network, space.task.workload_hash, space.rule.name, seconds))
        rules = sorted({one.rule for one in judged})
        pairs = pairs_of(list(models))
        figures = {
            "networks": options.networks,
            "seeds": options.seeds,
            "tasks": len({(one.board, one.task) for one in judged}),
            "ratios": ratios(judged, pairs),
            "rules": {
                rule: {
                    pair: by_board[ALL]
                    for pair, by_board in ratios([one for one in judged if one.rule == rule], pairs).items()
                }
                for rule in rules
            },
        }
        write_result(options.json, about | figures)
    for pair, by_board in figures["ratios"].items():
        for board, one in by_board.items():
            bounds = f"({one['low']:.3f} to {one['high']:.3f})" if one["low"] is not None else ""
            print(f"{pair:40s} {board:26s} {one['geomean']:.3f} {bounds} median {one['median']:.3f}")


if __name__ == "__main__":
    main()
