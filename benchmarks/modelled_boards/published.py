"""Modelled boards beside published times: `python -m benchmarks.modelled_boards.published [--json FILE]`.

ncnn publishes what networks take on boards with one thread (benchmark/README.md of its repository). Here a
network takes the sum of its kernels, each with Gensor's first program in fp32. ncnn's kernels are others, so
that times differ, and on cores that have arithmetic in half precision (Cortex-A76) it uses that: only between
boards of one core should the ratio of modelled times be the published one.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import tvm

from benchmarks.result_file import add_json_option, heading, write_result
from host.build import default_schedule
from host.errors import ScheduleError
from host.gensor import Gensor
from host.importers import load_here
from host.lowering import lower
from host.model import DeviceProfile, Task
from host.schedules import scheduled_function, space_for
from research.modelled_boards.boards import modelled_board
from research.modelled_boards.timer import ModelledTimer, profile_of_modelled

SCHEMA = "edgetlm.modelled_boards_published/1"
# Milliseconds with one thread.
PUBLISHED = {
    "mobilenetv2": {"raspberry_pi_4": 93.0, "raspberry_pi_5": 16.2, "rk3588_a76": 18.7},
    "resnet50": {"raspberry_pi_4": 533.0, "raspberry_pi_5": 89.0, "rk3588_a76": 108.0},
}


def first_function(task: Task, profile: DeviceProfile) -> tvm.tirx.PrimFunc:
    """The program of a task that is taken without measuring."""
    try:
        space = space_for(task, profile.hardware, profile.threads)
    except ScheduleError:
        space = None
    if space is None:
        return default_schedule(task.function)
    [candidate] = Gensor().propose(space, profile, (), 1, seed=0)
    return scheduled_function(space.apply(candidate))


def network_s(path: Path, board: str, folder: Path) -> tuple[float, list[str]]:
    """Seconds of all kernels of a network on a modelled board, and notes of kernels that have no time."""
    modelled, notes = modelled_board(board), list[str]()
    profile, timer = profile_of_modelled(modelled), ModelledTimer(modelled, folder)
    total = 0.0
    for task in lower(load_here(path, golden_cases=1), profile.board).tasks:
        times = timer.times_of(task, {"kernel": first_function(task, profile)}, notes.append)
        total += task.weight * sum(seconds for (seconds,) in times.values())
    return total, notes


def compared(times_s: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Modelled over published ratios of boards, by network and pair: 1 where the model agrees."""
    found: dict[str, dict[str, float]] = {}
    for network, by_board in times_s.items():
        for slow, fast in combinations(by_board, 2):
            published = PUBLISHED[network][slow] / PUBLISHED[network][fast]
            modelled = by_board[slow] / by_board[fast]
            found[f"{network} {slow}/{fast}"] = {
                "published": published,
                "modelled": modelled,
                "deviation": modelled / published,
            }
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Times networks on the boards that have published times."""
    parser = argparse.ArgumentParser(prog="benchmarks.modelled_boards.published", description=__doc__)
    parser.add_argument("--models", nargs="+", choices=tuple(PUBLISHED), default=list(PUBLISHED))
    add_json_option(parser)
    options = parser.parse_args(arguments)
    from research.models.export import main as export

    about = heading("benchmarks.modelled_boards.published", SCHEMA, arguments)
    times: dict[str, dict[str, float]] = {}
    notes: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as name:
        folder = Path(name)
        export([*options.models, "-o", str(folder), "--format", "onnx"])
        for model in options.models:
            times[model] = {}
            for board in PUBLISHED[model]:
                seconds, left_out = network_s(folder / f"{model}.onnx", board, folder)
                times[model][board], notes[f"{model} {board}"] = seconds, left_out
                print(
                    model,
                    board,
                    f"{1e3 * seconds:.1f} ms, {PUBLISHED[model][board]} published",
                    flush=True,
                )
            figures = {"times_s": times, "left_out": notes, "ratios": compared(times)}
            write_result(options.json, about | figures)
    print(figures["ratios"])


if __name__ == "__main__":
    main()
