"""Chains in bands on simulated boards, whose times are known for every program: nothing is measured.

    python -m benchmarks.learning.simulated FILES... [--boards NAME:SEED...] [--chains N] [--json F]
        [--resume]

FILES are ONNX files of networks. The times of a board are those of `research.figures.finetuning`: the
estimates for another processor than the one that is declared, times what the board prefers of each decision,
drawn with the seed. Those of a chain are the sum over its parts, times the bands. What is measured has 3% of
noise; what is judged has none.

The chains of each network are judged with what the tasks of the rule `tiled` of the other networks have
taught (24 programs of each), as the records of a board do. `orders` has Spearman's correlation with the times
of 64 random programs of each chain, every other one the best of four by the estimate: of T, of T_hat as it is
(`parts`), and of T_hat taught by two other chains alone (`chains`, with and without the parts' rules).
`ratios` compares arms of `benchmarks.learning` with 0 and 10 measurements; `unmixed32_that` is the language
model without parts that are drawn uniformly. `tasks_judged` has each chain; with `--resume`, a result of the
same command and commit goes on with the boards that it has not.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learned_estimate.order import figure
from benchmarks.learning.__main__ import PAIRS, figures_of
from benchmarks.learning.arms import REFERENCE, programs_of_arms
from benchmarks.learning.space_sizes import spaces_of
from benchmarks.modelled_boards.choices import programs_in
from benchmarks.modelled_boards.draws import Program, written
from benchmarks.modelled_boards.figures import Judged
from benchmarks.result_file import add_json_option, figures_so_far, heading, write_result
from host.errors import UserError
from host.importers import load_here as load
from host.learned_estimate.estimate import LearnedEstimate
from host.learned_estimate.observation import Observation
from host.model import DeviceProfile
from host.schedules import DesignSpace
from host.schedules.drawing import draw_ranked
from host.tlm.model.checkpoints import SHIPPED
from host.tlm.proposer import Tlm
from research.estimate.withheld import spearman
from research.figures.finetuning import NOISE, truth_of
from research.pretraining.boards import board_of
from targets import Board

SCHEMA = "edgetlm.simulated_chains/1"
_BOARDS = (
    "raspberry_pi_4:5",
    "x86_64-v4:4",
    "raspberry_pi_4:8",
    "x86_64-v4:3",
    "raspberry_pi_5:6",
    "x86_64-v3:7",
)
_PROGRAMS, _ORDERED, _TAUGHT_CHAINS = 24, 64, 2
_PART_RULE = "tiled"
BUDGETS = (0, 10)
_PAIRS = (
    *(pair for pair in PAIRS if not any(arm.startswith("tuned") for arm in pair)),
    ("unmixed32_that", "random32_that"),
    ("unmixed32_that", "exchanged_random32_that"),
    ("tlm32_that", "unmixed32_that"),
)


class SimulatedBoard:
    """A board whose times are known.

    Args:
        name: of the declared board.
        seed: of what it prefers.
    """

    def __init__(self, name: str, seed: int) -> None:
        self.title = f"{name} {seed}"
        self.seed = seed
        self._truth = truth_of(seed)

    def seconds(self, space: DesignSpace, values: Program) -> float:
        """What a program takes."""
        if not space.parts:
            return self._truth(space, values)
        flat, total = [values[decision.name] for decision in space.decisions], 0.0
        for part in space.parts:
            own = dict(zip((decision.name for decision in part.decisions), flat, strict=False))
            total += self._truth(part, own)
            flat = flat[len(own) :]
        return space.workload.bands * total

    def measured(self, space: DesignSpace, values: Program) -> float:
        """What a program is measured to take; always the same."""
        text = f"{self.title}/{space.task.workload_hash}/{sorted(values.items())}"
        return self.seconds(space, values) * random.Random(text).lognormvariate(0.0, NOISE)

    def taught(self, spaces: Sequence[DesignSpace]) -> list[Observation]:
        """Programs of some tasks, every other one the best of four by the estimate."""
        return [
            Observation.of(space, values, self.measured(space, values))
            for space in spaces
            for values in drawn(space, _PROGRAMS, f"{self.title}/taught")
        ]


def drawn(space: DesignSpace, count: int, name: str) -> list[Program]:
    """Random programs of a task, every other one the best of four by the estimate."""
    generator = random.Random(f"{name}/{space.task.workload_hash}")
    return [draw_ranked(space, generator, 4 if number % 2 else 1) for number in range(count)]


@dataclass(frozen=True, eq=False)
class NetworkTasks:
    """The tasks of one network on one board.

    Attributes:
        name: of the network.
        chains: in bands of rows.
        others: of the rule of a chain's parts.
    """

    name: str
    chains: tuple[DesignSpace, ...]
    others: tuple[DesignSpace, ...]


def tasks_of(files: Sequence[Path], board: Board, most: int) -> list[NetworkTasks]:
    """The tasks of networks, each of the first one that has it.

    Args:
        files: ONNX files.
        board: to make programs for.
        most: chains in all, evenly of the networks.
    """
    seen: set[str] = set()
    found = []
    for path in files:
        by_rule: dict[str, list[DesignSpace]] = defaultdict(list)
        for space in spaces_of(load(path, golden_cases=1), board, "", 1, in_bands=True):
            if space.task.workload_hash not in seen:
                seen.add(space.task.workload_hash)
                by_rule["chain" if space.parts else space.rule.name].append(space)
        chains = sorted(by_rule["chain"], key=lambda one: one.task.workload_hash)
        found.append(NetworkTasks(path.stem, tuple(chains), tuple(by_rule[_PART_RULE])))
    each = -(-most // max(1, sum(bool(one.chains) for one in found)))
    return [NetworkTasks(one.name, one.chains[:each], one.others) for one in found]


def orders_of(
    space: DesignSpace, board: SimulatedBoard, estimates: Mapping[str, LearnedEstimate]
) -> dict[str, float]:
    """Spearman's correlation with the times of a chain's programs: of T as "t", and of each estimate."""
    programs = drawn(space, _ORDERED, f"{board.title}/ordered")
    times = np.array([board.seconds(space, values) for values in programs])
    found = {"t": spearman(np.array([space.estimate_s(values) for values in programs]), times)}
    return found | {name: spearman(one.means(space, programs), times) for name, one in estimates.items()}


def ends_of(
    space: DesignSpace, board: SimulatedBoard, arms: Mapping[str, Sequence[Program]], budget: int
) -> dict[str, float]:
    """What each arm ends with after so many measurements, as in `benchmarks.learning`."""
    found, reference = {}, arms[REFERENCE][0]
    for arm, programs in arms.items():
        tried = [*programs[:budget], reference] if budget else programs[:1]
        found[arm] = board.seconds(space, min(tried, key=lambda values: board.measured(space, values)))
    return found


def judged_board(
    name: str, seed: int, networks: Sequence[NetworkTasks], model: Tlm, unmixed: Tlm
) -> list[dict[str, Any]]:
    """Of each chain the orders, and what the arms end with by number of measurements.

    Args:
        name: of the declared board.
        seed: of the simulated one.
        networks: whose chains are judged.
        model: the language model.
        unmixed: the same without parts that are drawn uniformly.
    """
    simulated, board = SimulatedBoard(name, seed), board_of(name)
    profile = DeviceProfile("simulated", board, board.hardware, 1)
    rows = []
    for network in networks:
        others = [one for one in networks if one is not network]
        parts = simulated.taught([space for one in others for space in one.others])
        whole = simulated.taught([space for one in others for space in one.chains][:_TAUGHT_CHAINS])
        estimates = {
            "parts": LearnedEstimate(parts),
            "chains": LearnedEstimate(whole),
            "parts_and_chains": LearnedEstimate([*parts, *whole]),
        }
        learned = estimates["parts"]
        for space in network.chains:
            arms = programs_of_arms(space, profile, learned, model, seed)
            arms["unmixed32_that"] = written(unmixed, space, profile, learned.cost_s, seed)
            rows.append(
                {
                    "board": simulated.title,
                    "model": network.name,
                    "task": space.task.workload_hash,
                    "programs": float(f"{programs_in(space):.3g}"),
                    "orders": orders_of(space, simulated, estimates),
                    "seconds": {str(one): ends_of(space, simulated, arms, one) for one in BUDGETS},
                }
            )
    return rows


def result_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures over all chains and boards, from the rows of `judged_board`."""
    judged = {
        budget: [
            Judged(one["board"], one["model"], one["task"], "chain", one["seconds"][str(budget)])
            for one in rows
        ]
        for budget in BUDGETS
    }
    figures = figures_of(judged, {one["task"]: one["programs"] for one in rows}, _PAIRS)
    return {**figures, "tasks": len(rows), "orders": ordered_by_board(rows), "tasks_judged": list(rows)}


def ordered_by_board(tasks: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Of each board, and of all, the mean correlation of each estimate with its interval."""
    by_board: dict[str, list[Mapping[str, float]]] = defaultdict(list)
    for one in tasks:
        by_board[one["board"]].append(one["orders"])
        by_board["all"].append(one["orders"])
    return {
        board: {arm: figure([one[arm] for one in known]) for arm in known[0]}
        for board, known in sorted(by_board.items())
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Judges the chains of the networks on every simulated board and prints the figures."""
    parser = argparse.ArgumentParser(prog="benchmarks.learning.simulated", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--boards", nargs="+", default=list(_BOARDS), help="declared board and seed of each")
    parser.add_argument("--chains", type=int, default=8, help="of each board, about")
    parser.add_argument("--model", type=Path, default=SHIPPED, help="folder of the language model")
    parser.add_argument("--resume", action="store_true", help="keep the boards that the result file has")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    about = heading("benchmarks.learning.simulated", SCHEMA, arguments)
    kept = figures_so_far(options.json, about) if options.resume else {}
    rows: list[dict[str, Any]] = list(kept.get("tasks_judged", ()))
    done = {one["board"] for one in rows}
    figures: Mapping[str, Any] = kept
    known: dict[str, list[NetworkTasks]] = {}
    model, unmixed = Tlm(options.model), Tlm(options.model, mixed=False)
    for name, seed in (one.rsplit(":", 1) for one in options.boards):
        if f"{name} {seed}" in done:
            continue
        if name not in known:
            known[name] = tasks_of(options.files, board_of(name), options.chains)
        rows += judged_board(name, int(seed), known[name], model, unmixed)
        if not rows:
            raise UserError("these networks have no chains in bands: name others")
        figures = result_of(rows)
        write_result(options.json, about | figures)
        print(name, seed, len(rows), "chains", flush=True)
    for board, arms in figures["orders"].items():
        print(board, {arm: (one["mean"], one["low"], one["high"]) for arm, one in arms.items()})
    for budget, by_pair in figures["ratios"].items():
        for pair, by_board in by_pair.items():
            print(budget, pair, {board: round(one["geomean"], 3) for board, one in by_board.items()})


if __name__ == "__main__":
    main()
