"""Tables of kernels for GPUs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from benchmarks.result_file import Result
from benchmarks.tables.table import markdown, short_commit

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


def cold(result: Result) -> list[str]:
    """A row for each bundle that was compiled from cold."""
    figures = result.figures
    about = f"{figures['target']}, {figures['processor']}, {figures['dtype']}"
    rows = [
        (
            row["model"],
            about,
            f"{row['wall_s']:.1f}",
            f"{row['cpu_s']:.1f}",
            f"{row['peak_bytes'] / 1e9:.2f}",
            f"{row['bundle_bytes'] / 1e6:.1f}",
        )
        for row in figures["rows"]
    ]
    head = ("model", "board, type", "s", "processor, s", "memory, GB", "bundle, MB")
    return markdown(head, rows)


_ARCHITECTURES_HEAD = (
    "model, fp16",
    "target",
    "multiply-adds on tensor cores",
    "outside of depthwise convolutions",
    "spilled, bytes",
    "bank conflicts",
    "accesses of shared memory, millions",
    "kernels",
    "compiled from cold, s",
    "processor time of that, s",
    "commit, processor",
)


def architectures(result: Result) -> list[str]:
    """A row for each model on each architecture; a model that does not compile has the reason."""
    rows = []
    for entry in result.figures["entries"]:
        about = (entry["model"], f"{entry['target']} ({entry.get('arch', '')})")
        if "error" in entry:
            empty = [""] * (len(_ARCHITECTURES_HEAD) - 4)
            rows.append((*about, entry["error"], *empty, _made_by(entry)))
            continue
        read = entry["disassembled"]
        rows.append(
            (
                *about,
                _share(entry["tensor_core_share"]) if read else "none there",
                _share(entry["tensor_core_share_of_others"]) if read else "",
                entry["spill_bytes"],
                entry["bank_conflicts"],
                f"{entry['shared_accesses'] / 1e6:.1f}",
                entry["kernels"],
                f"{entry['compile_s']:.1f}",
                f"{entry['compile_processor_s']:.1f}",
                _made_by(entry),
            )
        )
    return markdown(_ARCHITECTURES_HEAD, rows)


def _made_by(entry: Mapping[str, Any]) -> str:
    """What a row was made by: rows of one file may be of several runs."""
    return f"{short_commit(entry['commit'])}, {entry['cpu']}"


def _share(found: float | None) -> str:
    """A share in percent; older results do not have all of them."""
    return "not counted" if found is None else f"{found:.1%}"


# Rows of a product of several images or texts, in the names of layers.
_BATCH = 8


def layers(before: Result, after: Result) -> list[str]:
    """The speed of layers beside cuBLAS and cuDNN by kind, in two runs: geometric mean and least."""
    single, every = _single(after.figures), set(after.figures["products"]["ratios"])
    convolutions = set(after.figures["convolutions"]["ratios"])
    rows = []
    for title, kind, names in (
        ("products, batch 1", "products", single),
        ("products, batch 8", "products", every - single),
        ("products, all", "products", every),
        ("convolutions, batch 1", "convolutions", convolutions),
    ):
        shown = []
        for result in (before, after):
            ratios = [ratio for name, ratio in result.figures[kind]["ratios"].items() if name in names]
            shown.append(f"{statistics.geometric_mean(ratios):.2f} ({min(ratios):.2f})")
        rows.append((title, len(names), *shown))
    return markdown(("layers", "number", "first run", "last run"), rows)


def _single(figures: Mapping[str, Any]) -> set[str]:
    """Products whose rows are an eighth of those of another one with the same columns and depth."""
    sizes = {name: name.rsplit(" ", 1)[1].split("x") for name in figures["products"]["ratios"]}
    all_sizes = {(name.split(" ")[0], *found) for name, found in sizes.items()}
    return {
        name
        for name, (rows, *others) in sizes.items()
        if (name.split(" ")[0], str(_BATCH * int(rows)), *others) in all_sizes
    }


def whole_models(before: Result, after: Result) -> list[str]:
    """Latency of models and the ratio to torch, in two runs: kernel by kernel, and as a graph."""
    rows = []
    for name, entry in after.figures["models"].items():
        earlier = before.figures["models"].get(name)
        rows.append(
            (
                name,
                *(_latency(one) for one in (earlier, entry)),
                *(_ratio(one, way) for way in ("graph", "reduce-overhead") for one in (earlier, entry)),
                f"{entry['load_s']:.2f}" if entry else "",
                f"{entry['first_run_s'] * 1e3:.1f}" if entry else "",
            )
        )
    head = (
        "model",
        "ms, kernel by kernel",
        "ms, as a graph",
        "torch in a graph over ours, kernel by kernel",
        "as a graph",
        "torch.compile over ours, kernel by kernel",
        "as a graph",
        "loading, s",
        "first inference, ms",
    )
    return markdown(head, rows)


def _latency(entry: Mapping[str, Any] | None) -> str:
    if entry is None:
        return "not run"
    return f"{entry['latency_s'] * 1e3:.3f}" if entry else "not valid"


def _ratio(entry: Mapping[str, Any] | None, way: str) -> str:
    found = entry.get("torch_over_ours", {}).get(way) if entry else None
    return "" if found is None else f"{found:.2f}"


_CHOICES = {
    "process": "T_hat, cautious",
    "process_mean": "its mean, without caution (the product's with evidence)",
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
