"""Tables of kernels for GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.result_file import Result
from benchmarks.tables.table import markdown

_HEAD = (
    "model",
    "board, type",
    "multiply-adds on tensor cores",
    "multiply-adds of depthwise convolutions",
    "others on tensor cores",
    "spilled, bytes",
    "bank conflicts for each access of shared memory",
    "bank conflicts in `cuda_mma`",
    "kernels",
    "compiled from cold, s",
)


def kernels(*results: Result) -> list[str]:
    """A row for each model."""
    rows = []
    for result in results:
        figures = result.figures
        entries = figures["kernels"].values()
        on_tensor_cores = sum(
            int(entry["calls"]) * int(entry["bank_conflicts"])
            for entry in entries
            if entry["rule"] == "cuda_mma"
        )
        rows.append(
            (
                figures["model"],
                f"{figures['target']}, {figures['dtype']}",
                f"{figures['tensor_core_share']:.1%}",
                _share(figures.get("depthwise_share")),
                _share(figures.get("tensor_core_share_of_others")),
                figures["spill_bytes"],
                f"{figures['bank_conflicts'] / max(1, figures['shared_accesses']):.3f}",
                on_tensor_cores,
                len(entries),
                f"{figures['compile_s']:.1f}",
            )
        )
    return markdown(_HEAD, rows)


def _share(found: float | None) -> str:
    """A share in percent; older results do not have all of them."""
    return "not counted" if found is None else f"{found:.1%}"


_CHOICES = {
    "process": "T_hat, cautious (the product's)",
    "process_mean": "its mean, without caution",
    "process_shuffled": "T_hat, cautious, taught with shuffled times",
    "process_mean_shuffled": "its mean, taught with shuffled times",
    "chance": "one at random",
    "fastest": "the fastest",
}


def learning(result: Result) -> list[str]:
    """Speed of each choice beside the least estimate by number of records, and its regret with the most."""
    counts = result.figures["by_records"]
    *_, (_, most) = counts.items()
    rows = []
    for arm, title in {"t": "T, the estimate", **_CHOICES}.items():
        speeds = [_valued(found["pools"]["all"][arm]["speed"]) for found in counts.values()]
        drawn = _valued(most["pools"]["drawn"][arm]["speed"])
        rows.append((title, *speeds, drawn, _valued(most["pools"]["all"][arm]["regret"])))
    heads = [f"{count} records" for count in counts]
    return markdown(("choice", *heads, f"{heads[-1]}, drawn programs alone", "time / fastest"), rows)


def learning_rules(result: Result) -> list[str]:
    """The same by rule with the most records, and the correlation of estimates and times within a task."""
    *_, (_, found) = result.figures["by_records"].items()
    rows = []
    for rule, arms in found["rules"].items():
        order = found["order"].get(rule)
        if arms:
            shown = ("process", "process_mean", "process_shuffled", "chance", "fastest")
            speeds = [_valued(arms[arm]["speed"]) for arm in shown]
            orders = [f"{order[side]['mean']:.2f}" for side in ("t", "t_hat")] if order else ["", ""]
            rows.append((rule, str(arms["t"]["speed"]["n"]), *speeds, *orders))
    head = (
        "rule",
        "tasks",
        "T_hat",
        "its mean",
        "shuffled",
        "at random",
        "fastest",
        "order by T",
        "by T_hat",
    )
    return markdown(head, rows)


def _valued(figure: Mapping[str, Any]) -> str:
    bounds = "" if figure["low"] is None else f" ({figure['low']:.3f} to {figure['high']:.3f})"
    return f"{figure['value']:.3f}{bounds}; {figure['median']:.3f}"
