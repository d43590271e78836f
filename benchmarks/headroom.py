"""How far Gensor's programs are from the best known ones: `python -m benchmarks.headroom`.

    python -m benchmarks.headroom [--modelled FOLDER...] [--measured BOARD=FILE...] [--json FILE]

Each FOLDER has timed programs of modelled boards, BOARD.jsonl or BOARD.jsonl.gz (`python -m
research.modelled_boards` and its `pools`); each FILE has programs of a machine (`sdk tlm collect`, `python -m
research.collection.in_model`). Nothing is timed here.

`headroom` of a task on a board is the time of the program that is constructed without measuring over that of
the fastest timed one. On a modelled board it is at least what a learner could gain there, as more programs
could be tried. The programs of FILE were mostly timed once, so the fastest is chosen and timed by the same
noisy times: its time is too short, and the headroom too large; it bounds nothing. A task below `--least`
leaves nothing to learn, and is listed as such. Programs of rules that have changed since are
left out, and tasks with few programs.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.learned_estimate.withheld import bounded
from benchmarks.result_file import add_json_option, heading, write_result
from host.errors import UserError
from research.collection.dataset import MeasuredProgram, current_programs
from research.modelled_boards.boards import modelled_board_names

SCHEMA = "edgetlm.headroom/1"
_LEAST_PROGRAMS = 16
# Kinds of tasks by what their names have, the first that fits.
_KINDS = (
    ("depthwise", "depthwise convolution"),
    ("conv", "convolution"),
    ("softmax", "softmax"),
    ("dense", "dense product"),
    ("matmul", "dense product"),
    ("mean", "reduction"),
    ("pool", "pooling"),
    ("norm", "normalisation"),
)
_OTHERS = "others"


@dataclass(frozen=True)
class TaskHeadroom:
    """What one task leaves on one board.

    Attributes:
        board: name.
        model: of the task.
        task: workload hash.
        name: of the task.
        kind: see `kind_of`.
        programs: different ones that were timed.
        first_s, best_s: seconds of the constructed program, and of the fastest one.
        best_by: who proposed the fastest one.
    """

    board: str
    model: str
    task: str
    name: str
    kind: str
    programs: int
    first_s: float
    best_s: float
    best_by: str

    @property
    def headroom(self) -> float:
        """Time of the constructed program over that of the fastest one, 1 at least."""
        return self.first_s / self.best_s

    @property
    def content(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "board": self.board,
            "model": self.model,
            "task": self.task,
            "name": self.name,
            "kind": self.kind,
            "programs": self.programs,
            "first_us": round(1e6 * self.first_s, 2),
            "best_us": round(1e6 * self.best_s, 2),
            "best_by": self.best_by,
            "headroom": round(self.headroom, 4),
        }


def kind_of(name: str) -> str:
    """The kind of a task, by its name."""
    return next((kind for part, kind in _KINDS if part in name), _OTHERS)


def headrooms(board: str, programs: Iterable[MeasuredProgram]) -> list[TaskHeadroom]:
    """What each task of a board leaves, where its constructed program and enough others were timed.

    A program that was timed more than once has the mean of its times: the least of many would flatter the one
    that was timed most.
    """
    by_task: dict[str, dict[object, list[MeasuredProgram]]] = defaultdict(lambda: defaultdict(list))
    for one in programs:
        by_task[one.task][one.decided].append(one)
    found = []
    for task, known in sorted(by_task.items()):
        timed = {key: math.fsum(one.seconds for one in same) / len(same) for key, same in known.items()}
        first = next((key for key, same in known.items() if any(one.first for one in same)), None)
        if first is not None and len(timed) >= _LEAST_PROGRAMS:
            best = min(timed, key=lambda key: timed[key])
            one = known[best][0]
            about = (board, one.model, task, one.name, kind_of(one.name), len(timed))
            found.append(TaskHeadroom(*about, timed[first], timed[best], one.origin))
    return found


def figures_of(tasks: Sequence[TaskHeadroom], least: float) -> dict[str, Any]:
    """Headroom by kind and board, and over all kinds and boards; tasks below `least` are counted."""
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for kind in (*sorted({one.kind for one in tasks}), "all"):
        for board in (*sorted({one.board for one in tasks}), "all"):
            own = [one for one in tasks if kind in (one.kind, "all") and board in (one.board, "all")]
            if own:
                below = sum(one.headroom < least for one in own)
                found[kind][board] = {**bounded([one.headroom for one in own]), "below": below}
    return dict(found)


def _sources(options: argparse.Namespace) -> Iterable[tuple[str, list[MeasuredProgram]]]:
    for board in modelled_board_names():
        paths = [folder / f"{board}.jsonl{end}" for folder in options.modelled for end in ("", ".gz")]
        programs = [one for path in paths if path.is_file() for one in current_programs(path)]
        if programs:
            yield f"{board} (modelled)", programs
    for text in options.measured:
        board, _, path = text.partition("=")
        if not Path(path).is_file():
            raise UserError(f"--measured {text}: BOARD=FILE, for example avx2=research/collection/FILE")
        yield board, current_programs(Path(path))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the headroom by board and kind, and write all tasks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.headroom", description=__doc__)
    parser.add_argument("--modelled", type=Path, nargs="*", default=[], metavar="FOLDER")
    parser.add_argument("--measured", nargs="*", default=[], metavar="BOARD=FILE")
    parser.add_argument("--least", type=float, default=1.02, help="below it nothing is left to learn")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    about = heading("benchmarks.headroom", SCHEMA, arguments)
    tasks = [one for board, programs in _sources(options) for one in headrooms(board, programs)]
    if not tasks:
        raise UserError("no task has enough timed programs: name folders or files that have some")
    kinds = figures_of(tasks, options.least)
    for kind, by_board in kinds.items():
        print(kind, {board: _shown(one) for board, one in by_board.items()})
    listed = [one.content for one in sorted(tasks, key=lambda one: -one.headroom)]
    write_result(options.json, about | {"least": options.least, "headroom": kinds, "tasks": listed})


def _shown(one: Mapping[str, Any]) -> str:
    return f"{one['value']:.3f}, median {one['median']:.3f}, {one['below']} of {one['n']} below"


if __name__ == "__main__":
    main()
