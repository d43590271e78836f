"""Programs chosen for energy with few measurements: `python -m benchmarks.energy`.

    python -m benchmarks.energy [--tasks N] [--measurements N] [--seeds N] [--json FILE]

Random tasks are tuned on simulated boards whose true time and power of every program are known (`boards`).
The tunings are those of the product, with N measurements for each task, 2% of noise in times and in watts,
and no language model; a task is taught by those before it. Each arm takes a program for each task:

    learned            chooses what to measure, and what to take, by seconds and watts
    latency_by_energy  chooses what to measure and to confirm by seconds, and takes by seconds and watts
    latency            chooses both by seconds
    random             measures programs that are each the best of 8 random ones by the estimate
    random_ranked      chooses what to measure by seconds and watts, of 32 random programs each time
    pool               without measuring, the best of 300 random programs by the truth
    fastest            without measuring, the fastest program of all by the truth

Both random arms take by seconds and watts. At its end a tuning measures again what would be taken, and only
programs that were measured again, or first, are taken. The figure of an arm is the true cost of its program
over the optimum: the least true cost of what descends from the best three of 300 random programs and all
that any arm has measured. The cost is joules for energy, and joules x seconds for EDP. A task of a board
counts once, with the mean over seeds of the noise and of what the host does not know; intervals are over
tasks. Nothing of this machine is timed: the figures are the same on any.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.energy.boards import BOARDS, BoardPower, TrueBoard, best, spread_of, tasks_for
from benchmarks.energy.tuning import Tuned
from benchmarks.learned_estimate.withheld import bounded
from benchmarks.result_file import add_json_option, heading, write_result
from host.options.objective import power_exponent

SCHEMA = "edgetlm.energy/1"
ARMS = ("learned", "latency_by_energy", "latency", "random", "random_ranked", "pool", "fastest")
# Random programs of which the spread of times is taken.
_SPREAD = 100
# Random programs of a pool.
_POOL = 300
# By objective, board, task and arm: logarithms of the cost over the least of the pool, one for each seed.
Logs = dict[tuple[str, str, str, str], list[float]]


def judge_board(
    power: BoardPower, seed: int, options: argparse.Namespace, folder: Path, into: Logs
) -> list[float]:
    """Add what every arm takes on one board with one seed; returns how far times are from the estimate."""
    board = TrueBoard(power, seed, folder)
    spaces = tasks_for(board, options.task_seed, options.tasks)

    def tuned(arm: str, exponent: float) -> Tuned:
        return Tuned(board, spaces, arm, exponent, options.measurements, seed, folder)

    fast = tuned("learned", 0.0)
    for objective in options.objectives:
        exponent = power_exponent(objective)
        learned, ranked, random = (tuned(arm, exponent) for arm in ("learned", "random_ranked", "random"))
        arms = {
            "learned": (learned, exponent),
            "latency_by_energy": (fast, exponent),
            "latency": (fast, 0.0),
            "random": (random, exponent),
            "random_ranked": (ranked, exponent),
        }
        for space in spaces:
            key = space.task.workload_hash
            known = [values for one in (learned, fast, random, ranked) for values in one.measured(key)]
            drawn, found = best(board, space, known, exponent, _POOL)
            optimum = board.cost(space, found, exponent)
            for arm, (one, by) in arms.items():
                cost = board.cost(space, one.taken(key, by), exponent)
                # EDP is the square of its cost.
                power_of = 1.0 if objective == "energy" else 2.0
                into[objective, power.name, key, arm].append(power_of * math.log(cost / optimum))
            into[objective, power.name, key, "pool"].append(
                power_of * math.log(board.cost(space, drawn, exponent) / optimum)
            )
            dear = board.cost(space, best(board, space, known, 0.0, _POOL)[1], exponent)
            into[objective, power.name, key, "fastest"].append(power_of * math.log(dear / optimum))
    return [spread_of(board, space, _SPREAD) for space in spaces]


def figures_of(logs: Mapping[tuple[str, str, str, str], Sequence[float]]) -> dict[str, Any]:
    """Cost of each arm over the least of the pool, by objective, and by board."""
    found: dict[str, Any] = {}
    for objective in sorted({key[0] for key in logs}):
        own = {key[1:]: math.fsum(one) / len(one) for key, one in logs.items() if key[0] == objective}
        boards = sorted({board for board, _, _ in own})
        found[objective] = {
            arm: {
                "all": bounded([math.exp(log) for (_, _, who), log in own.items() if who == arm]),
                **{
                    board: bounded(
                        [
                            math.exp(log)
                            for (where, _, who), log in own.items()
                            if (where, who) == (board, arm)
                        ]
                    )
                    for board in boards
                },
            }
            for arm in ARMS
        }
        found[f"{objective} beside learned"] = {
            arm: {
                "all": bounded(
                    [
                        math.exp(log - own[board, task, "learned"])
                        for (board, task, who), log in own.items()
                        if who == arm
                    ]
                )
            }
            for arm in ARMS
            if arm != "learned"
        }
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Tunes on each board with each seed and prints the figures."""
    parser = argparse.ArgumentParser(prog="benchmarks.energy", description=__doc__)
    parser.add_argument("--tasks", type=int, default=4, help="of each board")
    parser.add_argument("--task-seed", type=int, default=0, help="of the random tasks")
    parser.add_argument("--measurements", type=int, default=10, help="of a task")
    parser.add_argument("--seeds", type=int, default=2, help="of noise, and of what the host does not know")
    parser.add_argument("--boards", nargs="+", help="names with their clock; all if left out")
    parser.add_argument("--objectives", nargs="+", choices=("energy", "edp"), default=["energy", "edp"])
    add_json_option(parser)
    options = parser.parse_args(arguments)
    about = heading("benchmarks.energy", SCHEMA, arguments)
    boards = [one for one in BOARDS if options.boards is None or one.name in options.boards]
    logs: Logs = defaultdict(list)
    spreads: list[float] = []
    for power in boards:
        for seed in range(options.seeds):
            with tempfile.TemporaryDirectory(prefix="edgetlm-") as name:
                spreads += judge_board(power, seed, options, Path(name), logs)
            print(power.name, seed, flush=True)
        figures = {
            "tasks": options.tasks,
            "seeds": options.seeds,
            "measurements": options.measurements,
            "boards": sorted({board for _, board, _, _ in logs}),
            "spread_of_time": statistics.median(spreads),
            "cost": figures_of(logs),
        }
        write_result(options.json, about | figures)
    for objective, arms in figures["cost"].items():
        for arm, one in arms.items():
            print(objective, arm, {name: _shown(own) for name, own in one.items()})


def _shown(one: Mapping[str, Any]) -> str:
    low, high = one["low"], one["high"]
    bounds = f" ({low:.3f} to {high:.3f})" if low is not None and high is not None else ""
    return f"{one['value']:.3f}{bounds}; {one['median']:.3f}"


if __name__ == "__main__":
    main()
