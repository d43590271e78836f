"""Programs of language models by the estimate.

    python -m benchmarks.written_programs NAME=FOLDER... --files ONNX_FOLDER [--json F]

The tasks are of networks that are held out of the training, on several boards; BOARD-gpu is the GPU of a
board, BOARD-gpu-fp16 the same with models in halves. Nothing is measured: times are those of the estimate T,
so that the figures say what a model has learned of the space, and not how good T is; on BOARD-modelled, those
of a model of the processor, which owes nothing to T (`research.modelled_boards`). Each arm has a program
for each task and seed:

    gensor              Gensor's first
    random              a uniformly random one
    random32            the best by T of 32 uniformly random ones
    infilled_random32   the best by T of 24 of them and of 8 near the best of these by T
    NAME_likelihood     the likeliest of 32 programs of the model in FOLDER
    NAME_tlm32          the best by T of 32 programs that the model writes as in a deployment

`ratios` has the time of the second arm over that of the first, over tasks and boards, a mean over seeds;
above 1 the first is faster. `rules` has the same by rule.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.modelled_boards.figures import ALL, ratios
from benchmarks.result_file import add_json_option, heading, write_result
from benchmarks.written_programs.arms import Work
from research.pretraining.ordered_pool import in_order

SCHEMA = "edgetlm.written_programs/1"
_NETWORKS = ("mobilenetv2", "dcgan")
_BOARDS = ("x86_64-v4", "raspberry_pi_4", "jetson_orin_nano-gpu", "jetson_orin_nano-gpu-fp16")


def pairs_of(names: Sequence[str]) -> list[tuple[str, str]]:
    """What is compared with what, for some models; each of them with the first one."""
    found = [("random32", "gensor"), ("random", "gensor"), ("infilled_random32", "random32")]
    for name in names:
        tlm, likelihood = f"{name}_tlm32", f"{name}_likelihood"
        found += [(tlm, "random32"), (tlm, "infilled_random32"), (tlm, "gensor"), (likelihood, "gensor")]
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
    parser.add_argument("--most-mflop", type=float, default=float("inf"), help="leave larger tasks out")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args(arguments)
    about = heading("benchmarks.written_programs", SCHEMA, arguments)
    folders = dict(one.split("=", 1) for one in options.models)
    every = [(network, board) for board in options.boards for network in options.networks]
    work = Work(folders, options.files, every, options.tasks, options.seeds, 1e6 * options.most_mflop)
    judged = [one for found in in_order(work, range(len(every)), options.jobs) for one in found]
    pairs = pairs_of(list(folders))
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
            for rule in sorted({one.rule for one in judged})
        },
    }
    write_result(options.json, about | figures)
    for pair, by_board in figures["ratios"].items():
        for board, one in by_board.items():
            bounds = f"({one['low']:.3f} to {one['high']:.3f})" if one["low"] is not None else ""
            print(f"{pair:40s} {board:26s} {one['geomean']:.3f} {bounds} median {one['median']:.3f}")


if __name__ == "__main__":
    main()
