"""What a board's records add on other networks: `python -m benchmarks.modelled_boards.withheld`.

    python -m benchmarks.modelled_boards.withheld [--data FOLDER...] [--measured BOARD=FILE...]
        [--records N] [--seeds N] [--json F]

Each FOLDER has programs of modelled boards, BOARD.jsonl or BOARD.jsonl.gz (`python -m
research.modelled_boards` and its `pools`), each FILE programs of a machine (`sdk tlm collect`, `python -m
research.collection.in_model`). On each board each of its networks is withheld in turn. Some records of the
others on the same board, less those of tasks that the withheld one has too, teach. Each arm chooses one of a
task's timed programs without their times:

    process         by the learned estimate of the product, cautiously
    process_mean    by its mean, as the product chooses
    process_shuffled, process_mean_shuffled     the same, taught with times shuffled within each task
    deployed        as `process_mean` where the evidence in the records convinces, else the least estimate
    deployed_shuffled   the same, taught with shuffled times
    parts           by the parts of the estimate, each with a factor, see `moved_parts`
    parts_shuffled  the same, taught with shuffled times
    chance          a random one: geometric mean over all
    fastest         the fastest

Figures are the time of the program with the least estimate over that of the arm's choice, by task on a board,
a mean over seeds; above 1 the arm is faster. The pool "all" has all timed programs, "constructed" those of
Gensor, "drawn" the others. Beside the choices among Gensor's programs, `drawn_mean` and `drawn_t` choose from
as many of the others, by the mean and by the least estimate. Programs of rules that have changed since are
left out. Nothing is timed here.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learned_estimate.withheld import (
    Kernel,
    bounded,
    kernels_of,
    observations_of,
    shuffled,
    training_observations,
)
from benchmarks.modelled_boards.moved_parts import MovedParts
from benchmarks.residual_trees.__main__ import chosen_logs
from benchmarks.result_file import add_json_option, heading, write_result
from host.errors import UserError
from host.learned_estimate.evidence import evidence_of
from host.learned_estimate.observation import Observation
from host.learned_estimate.process import RuleProcess
from research.collection.dataset import current_programs
from research.modelled_boards.boards import modelled_board_names

SCHEMA = "edgetlm.modelled_boards_withheld/1"
_CONSTRUCTED = "gensor"
_POOLS = ("all", "drawn", "constructed")
_LEAST_PROGRAMS = 4
# Ends of the names of arms.
_TRUE, _SHUFFLED = "", "_shuffled"
# By arm, then by pool and task.
Logs = dict[str, dict[tuple[str, str], list[float]]]


def read_boards(
    folders: Sequence[Path], measured: Sequence[str]
) -> dict[str, tuple[list[Observation], list[Kernel]]]:
    """The programs of each board whose rules still make them as they did.

    Args:
        folders: of programs of modelled boards.
        measured: BOARD=FILE of programs of machines.

    Raises:
        UserError: there are none, a folder has a file and a compressed one of the same board, or a file of a
            machine is missing.
    """
    paths = {board: [_file_of(board, folder) for folder in folders] for board in modelled_board_names()}
    for text in measured:
        board, _, name = text.partition("=")
        if not Path(name).is_file():
            raise UserError(f"--measured {text}: no such file; give BOARD=FILE")
        paths[board] = [Path(name)]
    found = {}
    for board, own in paths.items():
        programs = [one for path in own if path.is_file() for one in current_programs(path)]
        if programs:
            found[board] = observations_of(programs), kernels_of(programs)
    if not found:
        raise UserError("no programs of any board there: collect with research.modelled_boards")
    return found


def _file_of(board: str, folder: Path) -> Path:
    plain, compressed = (folder / f"{board}.jsonl{end}" for end in ("", ".gz"))
    if plain.is_file() and compressed.is_file():
        raise UserError(f"{plain} lies beside {compressed.name}, and programs count once: remove one of them")
    return compressed if compressed.is_file() else plain


class Arms:
    """What the records of one rule teach each arm.

    Args:
        taught: the records.
        seed: of the shuffled times.
    """

    def __init__(self, taught: Sequence[Observation], seed: int) -> None:
        false = shuffled(taught, seed)
        self._processes = {_TRUE: RuleProcess(taught), _SHUFFLED: RuleProcess(false)}
        self._convinces = {name: evidence_of(one).convinces for name, one in self._processes.items()}
        self._parts = {"parts": MovedParts(taught), "parts_shuffled": MovedParts(false)}

    def logs(self, kernel: Kernel) -> dict[str, dict[str, float]]:
        """Logarithm of the time of the least estimate's program over that of each arm's, by pool."""
        corrections = {arm: one.correction(kernel.programs) for arm, one in self._parts.items()}
        predictions = {name: one.predict(kernel.programs) for name, one in self._processes.items()}
        constructed = np.array([who == _CONSTRUCTED for who in kernel.drawn_by])
        drawn = np.flatnonzero(~constructed)
        pools = zip(_POOLS, (np.arange(len(constructed)), drawn, np.flatnonzero(constructed)), strict=True)
        found = {}
        for pool, which in pools:
            if len(which) < _LEAST_PROGRAMS:
                continue
            found[pool] = chosen_logs(kernel, which, predictions[_TRUE], corrections)
            noisy = chosen_logs(kernel, which, predictions[_SHUFFLED], {})
            found[pool] |= {f"{arm}{_SHUFFLED}": noisy[arm] for arm in ("process", "process_mean")}
            for name, convinces in self._convinces.items():
                found[pool][f"deployed{name}"] = found[pool][f"process_mean{name}"] if convinces else 0.0
            if pool == "constructed" and len(drawn) >= _LEAST_PROGRAMS:
                found[pool] |= _by_chance(kernel, which, drawn[: len(which)], predictions[_TRUE].mean)
        return found


def _by_chance(
    kernel: Kernel, constructed: np.ndarray, drawn: np.ndarray, mean: np.ndarray
) -> dict[str, float]:
    """What the rankers choose from programs that nobody constructed, beside Gensor's least estimate."""
    times, estimates = np.log(kernel.seconds), np.array([one.estimate_s for one in kernel.programs])
    beaten = times[constructed[np.argmin(estimates[constructed])]]
    return {
        arm: float(beaten - times[drawn[np.argmin(values[drawn])]])
        for arm, values in (("drawn_t", estimates), ("drawn_mean", mean))
    }


def board_logs(
    board: str,
    observations: Sequence[Observation],
    kernels: Sequence[Kernel],
    records: int,
    seed: int,
    into: Logs,
) -> None:
    """Add the logarithms of all arms on one board, each network withheld in turn."""
    for model in sorted({kernel.model for kernel in kernels}):
        known = training_observations(observations, kernels, model)
        taught = random.Random(f"{board}/{model}/{seed}").sample(known, min(records, len(known)))
        by_rule: dict[str, list[Observation]] = defaultdict(list)
        for one in taught:
            by_rule[one.rule].append(one)
        arms = {rule: Arms(own, seed) for rule, own in by_rule.items()}
        for kernel in kernels:
            if kernel.model == model and kernel.rule in arms:
                for pool, logs in arms[kernel.rule].logs(kernel).items():
                    for arm, log in logs.items():
                        into[arm][pool, f"{board}/{model}/{kernel.task}"].append(log)


def figures_of(logs: Mapping[str, Mapping[tuple[str, str], Sequence[float]]]) -> dict[str, dict[str, Any]]:
    """Speed of each arm beside the least estimate, by pool and arm, with 95% intervals over tasks."""
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for arm, by_key in logs.items():
        for pool in _POOLS:
            means = [math.exp(math.fsum(one) / len(one)) for key, one in by_key.items() if key[0] == pool]
            if means:
                found[pool][arm] = bounded(means)
    return dict(found)


def main(arguments: Sequence[str] | None = None) -> None:
    """Withholds each network on each board and prints the figures of every arm."""
    parser = argparse.ArgumentParser(prog="benchmarks.modelled_boards.withheld", description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", default=[], metavar="FOLDER")
    parser.add_argument("--measured", nargs="+", default=[], metavar="BOARD=FILE", help="of machines")
    parser.add_argument("--records", type=int, default=200, help="that teach")
    parser.add_argument("--seeds", type=int, default=5)
    add_json_option(parser)
    options = parser.parse_args(arguments)
    about = heading("benchmarks.modelled_boards.withheld", SCHEMA, arguments)
    boards = read_boards(options.data, options.measured)
    every: Logs = defaultdict(lambda: defaultdict(list))
    by_board = {}
    for board, (observations, kernels) in sorted(boards.items()):
        logs: Logs = defaultdict(lambda: defaultdict(list))
        for seed in range(options.seeds):
            board_logs(board, observations, kernels, options.records, seed, logs)
        for arm, by_key in logs.items():
            every[arm].update(by_key)
        by_board[board] = figures_of(logs)
        print(board, len(observations), "programs", flush=True)
    figures = {
        "records": options.records,
        "seeds": options.seeds,
        "programs": {board: len(observations) for board, (observations, _) in boards.items()},
        "by_board": by_board,
        "all": figures_of(every),
    }
    write_result(options.json, about | figures)
    for pool, arms in figures_of(every).items():
        for arm, one in arms.items():
            bounds = f"{one['value']:.3f} ({one['low']:.3f} to {one['high']:.3f})"
            print(f"{pool} {arm} {bounds} median {one['median']:.3f} n {one['n']}")


if __name__ == "__main__":
    main()
