"""Tables of single operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.operators.configurations import OPERATORS
from benchmarks.operators.figures import geomean
from benchmarks.result_file import Result
from benchmarks.tables.table import markdown, significant

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
        without = f"{geomean(direct):.2f}" if direct else "-"
        pair = f"{_METHODS[ours]} / {_METHODS[theirs]}{aim}"
        mean = f"{geomean(list(ratios.values())):.2f}"
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
    over = f"Geometric mean over {len(ratios)} operators: {geomean(list(ratios.values())):.2f}."
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
    """Withheld tasks by rule, estimated with the constants as they are and with learned ones."""
    rows = []
    for name, entry in {**result.figures["rules"], "all": result.figures["all"]}.items():
        before, after = entry["before"], entry["after"]
        low, high = entry["low"], entry["high"]
        bound = "-" if low is None else f"{low:.3f} to {high:.3f}"
        rows.append(
            (
                name,
                f"{entry['tasks']}, {entry['programs']}",
                f"{before['order']:.2f}, {after['order']:.2f}",
                f"{before['spread']:.2f}, {after['spread']:.2f}",
                f"{before['regret']:.3f}, {after['regret']:.3f}",
                f"{entry['speed_of_first']:.3f}",
                bound,
            )
        )
    head = ("rule", "tasks, programs", "order", "spread", "regret", "speed of the first program", "95%")
    return markdown(head, rows)
