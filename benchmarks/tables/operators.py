"""Tables of the benchmarks of single operators."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, log
from typing import Any

from benchmarks.operators.configurations import OPERATORS
from benchmarks.result_file import Result
from benchmarks.tables.table import markdown, short_commit, significant
from host.statistics import geometric_mean

_METHODS = {
    "gensor": "Gensor",
    "gensor10": "its top 10",
    "tree": "tree",
    "metaschedule": "MetaSchedule",
    "metaschedule-own": "MetaSchedule on our space",
    "library": "ONNX Runtime",
}
_PAIRS = (
    ("gensor", "metaschedule", "0.90; none under 0.5"),
    ("gensor", "library", "0.90; none under 0.5"),
    ("gensor10", "metaschedule", "1.0"),
    ("gensor", "tree", "1.18"),
    ("gensor", "metaschedule-own", ""),
    ("gensor10", "metaschedule-own", ""),
)
# Ways of choosing a program, see `research.estimate.choices`.
_WAYS = {
    "random": "one of the measured, at random",
    "random_few": "the best of 4 of the measured by the estimate",
    "space": "one at random",
    "space_few": "the best of 4 random ones by the estimate",
    "gensor": "Gensor's first",
    "gensor_few": "the best of Gensor's 4 by the estimate",
    "all": "the best of the measured by the estimate",
}
_WITHOUT_ESTIMATE = frozenset({"random", "space", "gensor"})
# Of a rule with fewer tasks nothing can be said.
_FEWEST_TASKS = 5
# MetaSchedule gets the direct form of these, which Gensor computes by Winograd's algorithm.
_WINOGRAD = frozenset(one.name for one in OPERATORS if one.name.startswith("conv_3x3_"))


def times(result: Result) -> list[str]:
    """Microseconds of each operator by each method."""
    found: Mapping[str, Any] = result.figures["operators"]
    methods = [name for name in _METHODS if any(name in entry for entry in found.values())]
    rows = [[name, *(_shown(entry, method) for method in methods)] for name, entry in found.items()]
    return markdown(["operator, us", *(_METHODS[method] for method in methods)], rows)


def _shown(entry: Mapping[str, Any], method: str) -> str:
    us = _us(entry, method)
    return "-" if us is None else significant(us, 4)


def _us(entry: Mapping[str, Any], method: str) -> float | None:
    us: float | None = entry.get(method, {}).get("us")
    return us


def summary(result: Result) -> list[str]:
    """Geometric mean and least ratio of speed, out of the times of the other table."""
    found: Mapping[str, Any] = result.figures["operators"]
    rows = []
    for ours, theirs, target in _PAIRS:
        ratios = _ratios(found, ours, theirs)
        if not ratios:
            continue
        direct = [ratio for name, ratio in ratios.items() if name not in _WINOGRAD]
        least = min(ratios, key=lambda name: ratios[name])
        aim = f" ({target})" if target else ""
        without = f"{geometric_mean(direct):.2f}" if direct else "-"
        pair = f"{_METHODS[ours]} / {_METHODS[theirs]}{aim}"
        mean = f"{geometric_mean(list(ratios.values())):.2f}"
        rows.append((pair, mean, without, f"{ratios[least]:.2f}, {least}"))
    head = ["geometric mean of speed (target)", "all", "without those by Winograd's algorithm", "least"]
    seconds = result.figures["construct"].get("gensor")
    made = (
        f"Gensor constructs a program in {seconds['geomean_s']:.2f} s in the geometric mean, "
        f"{seconds['max_s']:.2f} s at most (targets: 0.3 s, 1 s)."
    )
    return [*markdown(head, rows), *(["", made] if seconds else [])]


def _ratios(found: Mapping[str, Any], ours: str, theirs: str) -> dict[str, float]:
    times_us = {name: (_us(entry, ours), _us(entry, theirs)) for name, entry in found.items()}
    return {name: b / a for name, (a, b) in times_us.items() if a is not None and b is not None}


def slower_than_library(result: Result) -> list[str]:
    """The operators at which the library is faster, and the geometric mean over all."""
    ratios = _ratios(result.figures["operators"], "gensor", "library")
    slower = sorted((ratio, name) for name, ratio in ratios.items() if ratio < 1.0)
    rows = [(name, f"{ratio:.2f}") for ratio, name in slower]
    over = f"Geometric mean over {len(ratios)} operators: {geometric_mean(list(ratios.values())):.2f}."
    return [*markdown(["slower than ONNX Runtime", "speed beside it"], rows), "", over]


def emulation(result: Result) -> list[str]:
    """Operators whose results are right on each emulated processor."""
    rows = [
        (label, f"{row['verified']} of {row['operators']}", f"{row['max_rel_err']:.1e}")
        for label, row in result.figures["summary"].items()
    ]
    return markdown(["board and processor of the emulator", "verified", "largest error"], rows)


def instructions(result: Result) -> list[str]:
    """Executed instructions and modelled cycles of Gensor's programs, over those of random programs."""
    rows = [
        _counted(name, entry) for name, entry in result.figures["operators"].items() if "error" not in entry
    ]
    mean = {of: f"**{value:.2f}**" for of, value in result.figures["geomean"].items()}
    of_instructions = mean["instructions gensor/best"], mean["instructions gensor/median"]
    of_cycles = mean["cycles gensor/best"], mean["cycles gensor/median"]
    head = ["operator", "MFLOP", "instructions, thousands", "over best", "over median"]
    head += ["cycles, thousands", "over best", "over median", "hot loop: cycles, instructions, multiply-adds"]
    return markdown(head, [*rows, ("**geometric mean**", "", "", *of_instructions, "", *of_cycles, "")])


def _counted(name: str, entry: Mapping[str, Any]) -> tuple[str, ...]:
    ours, theirs = entry["gensor"], entry["random64"]
    loop, run, cycles = ours["hot_loop"], ours["instructions"], ours["estimated_cycles"]
    return (
        f"{name} (of {theirs['programs']})" if theirs["programs"] < 64 else name,
        f"{entry['mflop']:.1f}",
        f"{run / 1e3:.0f}",
        f"{run / theirs['best_instructions']:.2f}",
        f"{run / theirs['median_instructions']:.2f}",
        f"{cycles / 1e3:.0f}",
        f"{cycles / theirs['best_cycles']:.2f}",
        f"{cycles / theirs['median_cycles']:.2f}",
        f"{ours['mca_cycles'] or 0:.1f}, {loop['instructions']}, {loop['fused_multiply_adds']}",
    )


def dot_products(result: Result) -> list[str]:
    """Products of bytes beside the library's and beside ours in fp32."""
    rows = [
        (
            name,
            significant(entry["us"]["ours"]),
            f"{entry['multiply_adds_per_s'] / 1e9:.0f}",
            f"{entry['ours/library']:.2f}",
            f"{entry['ours/plain']:.2f}",
        )
        for name, entry in result.figures["operators"].items()
    ]
    head = ("operator", "us", "products/s, 10^9", "to ONNX Runtime's int8", "to ours in fp32")
    return markdown(head, rows)


def learned_constants(result: Result) -> list[str]:
    """How well estimates order the programs of withheld tasks, before and after they learn."""
    rows = []
    for name, entry in _rules_and_all(result):
        order, spread = entry["order"], entry["spread"]
        rows.append(
            (
                name,
                f"{entry['tasks']}, {entry['programs']}",
                *(_bounded(order[side], 2) for side in ("before", "after")),
                f"{order['before']['median']:.2f}, {order['after']['median']:.2f}",
                *(_bounded(spread[side], 2) for side in ("before", "after")),
                f"{spread['before']['median']:.2f}, {spread['after']['median']:.2f}",
            )
        )
    head = ("rule", "tasks, programs", "order, 95%", "after learning", "medians")
    return markdown((*head, "spread, 95%", "after learning", "medians"), rows)


def learned_choices(result: Result) -> list[str]:
    """What ways of choosing a program cost beside the fastest, before and after the estimates learn."""
    rows = []
    for name, entry in _rules_and_all(result):
        if entry["tasks"] < _FEWEST_TASKS:
            continue
        for way, text in _WAYS.items():
            if way not in entry["ways"]:
                continue
            found = entry["ways"][way]
            cells = [
                _bounded(found["before"], 3),
                f"{found['before']['median']:.3f}",
                f"{found['before']['most']:.2f}",
            ]
            learns = way not in _WITHOUT_ESTIMATE
            cells.append(_bounded(found["speed"], 3) if learns else "")
            rows.append((name, text, str(found["tasks"]), *cells))
    head = ("rule", "program", "tasks", "time over the fastest, 95%", "median", "most")
    return markdown((*head, "speed after learning, 95%"), rows)


def _rules_and_all(result: Result) -> list[tuple[str, Mapping[str, Any]]]:
    return [*result.figures["rules"].items(), ("all", result.figures["all"])]


def _bounded(figure: Mapping[str, float | None], digits: int) -> str:
    if figure["mean"] is None:
        return "-"
    bounds = "" if figure["low"] is None else f" ({figure['low']:.{digits}f} to {figure['high']:.{digits}f})"
    return f"{figure['mean']:.{digits}f}{bounds}"


def construction(result: Result) -> list[str]:
    """How near Gensor's programs are to the best of random ones, by target and rule, over all networks."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for entry in result.figures["entries"]:
        for rule, found in entry["rules"].items():
            groups.setdefault((entry["target"], rule), []).append({**entry, **found})
    # Targets in the order of the file, the rules of each by name.
    targets = list(dict.fromkeys(target for target, _ in groups))
    rows = []
    for target, rule in sorted(groups, key=lambda group: (targets.index(group[0]), group[1])):
        found = groups[target, rule]
        tasks, missed = (sum(one[name] for one in found) for name in ("tasks", "below_target"))
        worst = min(found, key=lambda one: one["least"])
        mean = exp(sum(one["tasks"] * log(one["geometric_mean"]) for one in found) / tasks)
        seconds = sum(one["tasks"] * one["mean_seconds"] for one in found) / tasks
        rows.append(
            (
                target,
                rule,
                str(len(found)),
                f"{mean:.4f}",
                f"{missed} of {tasks}",
                f"{worst['least']:.3f}, {worst['least_task']}" if missed else "",
                f"{seconds:.2f}, {max(one['most_seconds'] for one in found):.2f}",
                ", ".join(dict.fromkeys(short_commit(one["commit"]) for one in found)),
            )
        )
    least = result.figures["target"]
    head = (
        "target",
        "rule",
        "networks",
        f"geometric mean (target {least})",
        f"below {least}",
        "least",
        "mean, most seconds",
        "commits",
    )
    return markdown(head, rows)
