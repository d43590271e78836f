"""Collect programs on a modelled board: `python -m research.modelled_boards BOARD FILE MODEL... [options]`.

FILE grows by a line a program, in the form of `research.collection`, and can be continued. A MODEL is a path.
No time of this machine counts: other work may go on beside.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from research.collection.collect import Collector, tasks_in
from research.modelled_boards.boards import modelled_board, modelled_board_names
from research.modelled_boards.timer import ModelledTimer, profile_of_modelled


def main() -> None:
    """Collect until every task has its programs or time is up."""
    parser = argparse.ArgumentParser(prog="python -m research.modelled_boards", description=__doc__)
    parser.add_argument("board", choices=modelled_board_names())
    parser.add_argument("file", type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--sweeps", type=int, default=1, help="of 24 programs a task")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--most-mflop", type=float, default=40.0, help="leave larger tasks out")
    options = parser.parse_args()
    until = time.monotonic() + 60.0 * options.minutes
    board = modelled_board(options.board)
    profile = profile_of_modelled(board)
    every = tasks_in(options.models, profile)
    tasks = {key: one for key, one in every.items() if one.space.task.flops <= 1e6 * options.most_mflop}
    print(f"{len(tasks)} of {len(every)} tasks", flush=True)
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as folder:
        timer = ModelledTimer(board, Path(folder))
        collector = Collector(timer, profile, tasks, options.file, print)
        collector.run(options.sweeps, until)
    print(f"{collector.measured} programs")


if __name__ == "__main__":
    main()
