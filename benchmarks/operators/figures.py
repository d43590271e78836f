"""From measured rounds to the figures: times, ratios of speed, geometric means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.operators.comparison import FinalistComparison
from benchmarks.operators.methods import LIBRARY, Proposal
from benchmarks.operators.subject import Subject
from host.statistics import geometric_mean

SCHEMA = "edgetlm.operators/1"
# Whose speed is compared with everybody else's.
_OURS = ("gensor", "gensor10")


def entry_of(
    subject: Subject,
    proposals: Mapping[str, Proposal],
    failed: Mapping[str, str],
    comparison: FinalistComparison,
) -> dict[str, Any]:
    """The results of one operator."""
    entry: dict[str, Any] = {
        "class": subject.operator.kind,
        "origin": subject.operator.origin,
        "gflop": subject.task.flops / 1e9,
        "function": subject.task.name,
        "workload": subject.task.workload_hash,
    }
    for name in (*proposals, *failed, LIBRARY):
        reason = failed.get(name) or comparison.failed.get(name)
        if reason is not None:
            entry[name] = {"error": reason}
        elif name in comparison.rounds_s:
            entry[name] = _times(comparison.rounds_s[name], subject.task.flops)
            entry[name]["max_rel_err"] = comparison.errors[name]
    for name, proposal in proposals.items():
        entry[name] |= {
            "construct_s": proposal.watch.wall_s,
            "construct_cpu_s": proposal.watch.cpu_s,
            "decisions": proposal.program.decisions,
            **(
                {}
                if proposal.program.estimate_s is None
                else {"estimate_us": proposal.program.estimate_s * 1e6}
            ),
            **proposal.details,
        }
    if LIBRARY in comparison.rounds_s:
        entry[LIBRARY] |= {
            "construct_s": 0.0,
            "session_us": comparison.session_s * 1e6,
            "layout_share": comparison.layout_share,
        }
    entry["ratios"] = ratios(comparison.rounds_s)
    return entry


def _times(rounds_s: Sequence[float], flops: float) -> dict[str, Any]:
    median = float(np.median(rounds_s))
    return {
        "us": median * 1e6,
        "p10_us": float(np.percentile(rounds_s, 10)) * 1e6,
        "p90_us": float(np.percentile(rounds_s, 90)) * 1e6,
        "gflops": flops / median / 1e9,
    }


def ratios(rounds_s: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Ratios of speed, the median over rounds of the ratio within a round."""
    found = {}
    for ours in _OURS:
        for other in rounds_s:
            if ours in rounds_s and other != ours and (ours, other) != ("gensor", "gensor10"):
                found[f"{ours}/{other}"] = float(np.median(np.divide(rounds_s[other], rounds_s[ours])))
    return found


def summary(operators: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Geometric means and worst cases over all operators, and what construction took."""
    pairs: dict[str, dict[str, float]] = {}
    for name, entry in operators.items():
        for pair, ratio in entry["ratios"].items():
            pairs.setdefault(pair, {})[name] = ratio
    construct: dict[str, dict[str, float]] = {}
    for method in ("gensor", "tree"):
        seconds = [e[method]["construct_s"] for e in operators.values() if "construct_s" in e.get(method, {})]
        if seconds:
            construct[method] = {"max_s": max(seconds), "geomean_s": geometric_mean(seconds)}
    return {
        "geomean": {pair: geometric_mean(list(found.values())) for pair, found in pairs.items()},
        "worst": {pair: [*min(found.items(), key=lambda item: item[1])] for pair, found in pairs.items()},
        "classes": {pair: _by_class(found, operators) for pair, found in pairs.items()},
        "construct": construct,
    }


def _by_class(found: Mapping[str, float], operators: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    groups: dict[str, list[float]] = {}
    for name, ratio in found.items():
        groups.setdefault(str(operators[name]["class"]), []).append(ratio)
    return {kind: geometric_mean(values) for kind, values in groups.items()}
