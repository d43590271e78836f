"""What the language model's programs take on a GPU: `python -m benchmarks.gpu_written KIT RESULTS`.

KIT is a folder of `benchmarks.gpu_written.prepare`, of which only the plan is read. RESULTS is what this
command measured, which needs no compiler, and which goes on where it was stopped:

    python3 -m benchmarks.gpu KIT RESULTS --stages machine programs --seconds 120

With 1 measurement an arm has its first program, with 10 the fastest of its first ten; half of the samples
choose and the others count. Figures are by kind of program, and over all:

    ratios          time of the second arm over that of the first; above 1 the first is faster. Geometric
                    means over tasks of a mean over seeds, with 95% intervals, and medians
    share_of_best   time of the fastest program of any arm over that of each arm
    order           Spearman's correlation of the estimate T with time within a task, over all its programs

`large` has ratios and shares of spaces with more than 10,000 programs, `networks` the ratios of each network.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.figures import Item, read
from benchmarks.gpu.kit import Kit
from benchmarks.modelled_boards.figures import ALL, Judged, ratios, shares
from benchmarks.result_file import add_json_option, heading, write_result
from host.errors import UserError
from research.estimate.withheld import spearman

SCHEMA = "edgetlm.gpu_written/1"
BUDGETS = (1, 10)
PAIRS = (
    ("tlm32_t", "random32_t"),
    ("tlm32_t", "infilled_random32_t"),
    ("tlm32_t", "gensor_t"),
    ("tlm_likelihood", "gensor_t"),
    ("tlm_likelihood", "random32_t"),
    ("infilled_random32_t", "random32_t"),
    ("random32_t", "gensor_t"),
    ("random", "gensor_t"),
)
_FASTEST, _LARGE = "fastest", 10_000
# Correlations of fewer programs say little.
_LEAST_ORDERED = 6


def _times(entry: Mapping[str, Any]) -> tuple[float, float] | None:
    """Seconds by which a program is chosen and those that count; None for one that is wrong."""
    samples = entry.get("seconds")
    if not samples:
        return None
    counted = samples[1::2] or samples
    return statistics.median(samples[::2]), statistics.median(counted)


def judged_task(task: Mapping[str, Any], item: Item, name: str) -> Iterator[tuple[int, Judged]]:
    """The seconds of every arm for one task, by the number of measurements, for each seed."""
    times = [_times(entry) for entry in item["programs"]]
    right = [one for one in times if one is not None]
    for seed in range(max(map(len, task["arms"].values()))):
        for budget in BUDGETS:
            seconds = {_FASTEST: min(right)[1]} if right else {}
            for arm, lists in task["arms"].items():
                taken = [one for number in lists[seed][:budget] if (one := times[number]) is not None]
                # Other seeds, and random programs, have one program, which says nothing of ten.
                if taken and (budget == 1 or len(lists[seed]) > 1):
                    seconds[arm] = min(taken)[1]
            about = task["about"]
            yield budget, Judged(about["kind"], about["network"], name, about["kind"], seconds)


def orders(plan: Mapping[str, Any], items: Mapping[str, Item]) -> dict[str, dict[str, Any]]:
    """How well the estimate orders the programs of a task, by kind."""
    found: dict[str, list[float]] = defaultdict(list)
    for name, item in items.items():
        task = plan[name]
        pairs = [
            (program["estimate_s"], one[1])
            for program, entry in zip(task["programs"], item["programs"], strict=True)
            if (one := _times(entry)) is not None
        ]
        if len(pairs) >= _LEAST_ORDERED:
            value = spearman(*np.array(pairs).T)
            if not math.isnan(value):
                found[task["about"]["kind"]].append(value)
    found[ALL] = [value for values in list(found.values()) for value in values]
    return {
        kind: {"tasks": len(values), "mean": statistics.fmean(values), "median": statistics.median(values)}
        for kind, values in sorted(found.items())
        if values
    }


def summary(kit: Kit, results: Path) -> dict[str, Any]:
    """All figures of what was measured of a kit.

    Raises:
        UserError: nothing was.
    """
    tasks, measured = kit.tasks, read(results, "programs")
    items = {name: item for name, item in measured.items() if "programs" in item and name in tasks}
    if not items:
        raise UserError(f"{results} has no programs of {kit.folder}: measure with benchmarks.gpu")
    judged: dict[int, list[Judged]] = {budget: [] for budget in BUDGETS}
    for name, item in items.items():
        for budget, one in judged_task(tasks[name], item, name):
            judged[budget].append(one)
    large = {name for name in items if tasks[name]["about"]["programs"] > _LARGE}
    networks = sorted({one.model for one in judged[BUDGETS[0]]})
    in_large = {budget: [one for one in many if one.task in large] for budget, many in judged.items()}
    wrong = {
        f"{name}: {number}": entry["error"]
        for name, item in items.items()
        for number, entry in enumerate(item["programs"])
        if "error" in entry
    }
    failed = {name: item["error"] for name, item in measured.items() if "error" in item}
    return {
        "gpu": read(results, "machine").get("gpu", {}),
        "made": kit.plan["heading"],
        "tasks": len(items),
        "of_tasks": len(tasks),
        "programs": sum(len(item["programs"]) for item in items.values()),
        "errors": wrong | failed,
        **_figures(judged),
        "large": {"tasks": len(large), **_figures(in_large)},
        "networks": {
            network: _figures(
                {budget: [one for one in many if one.model == network] for budget, many in judged.items()}
            )["ratios"]
            for network in networks
        },
        "order": orders(tasks, items),
    }


def _figures(judged: Mapping[int, Sequence[Judged]]) -> dict[str, Any]:
    return {
        "ratios": {str(budget): ratios(many, PAIRS) for budget, many in judged.items()},
        "share_of_best": {str(budget): shares(many) for budget, many in judged.items()},
    }


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    tasks, errors = f"{found['tasks']} of {found['of_tasks']} tasks", len(found["errors"])
    yield f"{tasks}, {found['programs']} programs, {errors} errors"
    for name, part in (("", found), ("large spaces, ", found["large"])):
        for budget, pairs in part["ratios"].items():
            for pair, by_kind in pairs.items():
                for kind, one in by_kind.items():
                    bounds = f"({one['low']:.3f} to {one['high']:.3f})" if one["low"] is not None else ""
                    told = f"{one['geomean']:.3f} {bounds} median {one['median']:.3f}, {one['tasks']} tasks"
                    yield f"{name}{budget} measured {pair:28s} {kind:20s} {told}"
        for budget, arms in part["share_of_best"].items():
            for arm, by_kind in arms.items():
                yield f"{name}{budget} measured, share of best {arm:16s} {by_kind[ALL]:.3f}"
    for kind, one in found["order"].items():
        yield f"order {kind:20s} mean {one['mean']:.3f} median {one['median']:.3f}, {one['tasks']} tasks"
    yield from (f"error {name}: {text}" for name, text in list(found["errors"].items())[:20])


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_written", description=__doc__)
    parser.add_argument("kit", type=Path)
    parser.add_argument("results", type=Path)
    add_json_option(parser)
    options = parser.parse_args(arguments)
    about = heading("benchmarks.gpu_written", SCHEMA, arguments)
    found = summary(Kit(options.kit), options.results)
    gpu = found["gpu"].get("name", "an unknown GPU")
    write_result(options.json, {**about, "remark": f"Measured on an {gpu}.", **found})
    sys.stdout.write("".join(f"{line}\n" for line in _lines(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
