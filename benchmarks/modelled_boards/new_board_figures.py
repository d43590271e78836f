"""The figures of a new board with few records: see `benchmarks.modelled_boards.new_board`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.learned_estimate.withheld import bounded

RATIOS = (
    "that/t",
    "that_mean/t",
    "deployed/t",
    "boards/t",
    "fleet/t",
    "fleet_alone/t",
    "fleet/chance_fleet",
    "that_shuffled/t",
    "fleet_shuffled/t",
    "chance_t/t",
    "chance_that/chance_t",
    "chance_fleet/chance_t",
    "tlm_t/chance_t",
    "tuned_t/tlm_t",
    "tuned_shuffled/tlm_t",
    "tuned_that/tlm_t",
    "tuned_that/chance_that",
    "fastest/t",
)


def figures_of(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Ratios of arms by number of measurements and board; a task on a board counts once, by its mean.

    A kernel on several boards is no new kernel: over all boards a task counts once, by its mean over them.
    Kernels of a network are alike, and share what taught: `over_networks` counts each network once.
    """
    logs: dict[tuple[str, str, str, str, str], list[float]] = defaultdict(list)
    for line in lines:
        for arm, times in line["times"].items():
            for measured, seconds in zip(("1", "10"), times, strict=True):
                logs[(measured, line["board"], line["model"], line["task"], arm)].append(math.log(seconds))
    means = {key: math.fsum(own) / len(own) for key, own in logs.items()}
    found: dict[str, Any] = {}
    for measured in ("1", "10"):
        for ratio in RATIOS:
            arm, other = ratio.split("/")
            # The logarithm by (board, network, task).
            beside: dict[tuple[str, ...], float] = {
                key[1:4]: means[(*key[:4], other)] - log
                for key, log in means.items()
                if (key[0], key[4]) == (measured, arm) and (*key[:4], other) in means
            }
            if not beside:
                continue
            by_task: dict[tuple[str, ...], float] = {
                key: _mean(own) for key, own in _grouped(beside, lambda key: key[1:]).items()
            }
            by_board = {
                board: _geomean(own)
                for (board,), own in sorted(_grouped(beside, lambda key: key[:1]).items())
            }
            networks = [_mean(own) for own in _grouped(by_task, lambda key: key[:1]).values()]
            overall = _geomean(list(by_task.values())) | {"over_networks": _geomean(networks)}
            found.setdefault(measured, {})[ratio] = {"all": overall, **by_board}
    return found


def _grouped(
    logs: Mapping[tuple[str, ...], float], part: Callable[[tuple[str, ...]], tuple[str, ...]]
) -> dict[tuple[str, ...], list[float]]:
    """Values by a part of their keys."""
    found: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for key, one in logs.items():
        found[part(key)].append(one)
    return found


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _geomean(logs: Sequence[float]) -> dict[str, Any]:
    own = bounded([math.exp(one) for one in logs])
    return {"geomean": own["value"], **own}


def shares_of(lines: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Speed of each arm beside the fastest timed program, by number of measurements and board."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for place, measured in enumerate(("1", "10")):
        by_arm: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for line in lines:
            for arm, times in line["times"].items():
                for board in (line["board"], "all"):
                    by_arm[arm][board].append(-math.log(times[place]))
        found[measured] = {
            arm: {board: math.exp(math.fsum(one) / len(one)) for board, one in own.items()}
            for arm, own in by_arm.items()
        }
    return found
