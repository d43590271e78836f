"""Tables of what runs on a device: the agent, its sensors, its transport, and what trust costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.result_file import Result
from benchmarks.tables.table import markdown, short_commit, significant

# Rules of a model in a cell, those that take most.
_RULES_SHOWN = 3
_OVERHEAD = {"request": "a request", "model": "a model, measured once", "kernel": "a kernel over RPC"}


def agent(result: Result) -> list[str]:
    """Cost of the agent beside its limits."""
    figures, limits = result.figures, result.figures["limits"]
    idle = f"processor time of the idle agent over {figures['seconds']:.0f} s"
    wait = "host to agent, overhead of a measurement"
    after = "resident memory, Python executor after a model"
    rows = [
        (idle, f"{figures['idle_share']:.2%} of a core", f"{limits['idle_share']:.0%}"),
        ("the same with a host and an idle session", f"{figures['idle_share_with_session']:.2%}", ""),
        ("resident memory, agent", *_megabytes(figures["daemon_bytes"], limits["daemon_bytes"])),
        (after, *_megabytes(figures["executor_bytes"], limits["executor_bytes"])),
        (wait, f"{figures['overhead_s'] * 1e3:.1f} ms", f"{limits['overhead_s'] * 1e3:.0f} ms"),
    ]
    return markdown(("", "figure", "limit"), rows)


def _megabytes(*values: float) -> list[str]:
    return [f"{value / 1e6:.0f} MB" for value in values]


def overhead(result: Result) -> list[str]:
    """What a measurement costs beside the time measured, by way to the device."""
    rows = []
    for way, title in (("local", "local"), ("ssh", "through SSH")):
        found = result.figures[way]
        rows.append((title, *(f"{found[one]['median']:.2f}, {found[one]['p90']:.2f}" for one in _OVERHEAD)))
    return markdown(("milliseconds: median, 90th percentile", *_OVERHEAD.values()), rows)


def sampling(result: Result) -> list[str]:
    """Processor time of sampling each kind of sensor."""
    rows = [
        (kind, f"{found['readings_per_s']:g}", f"{found['share_of_a_core']:.1%}")
        for kind, found in result.figures["kinds"].items()
    ]
    return markdown(("sensor", "readings a second", "share of a core"), rows)


def bundle_check(result: Result) -> list[str]:
    """Seconds of the check of a bundle by each executor."""
    rows = [
        (title, *(f"{1e3 * result.figures[part][one]:.1f}" for one in ("first_s", "remembered_s")))
        for part, title in (("python_executor", "Python executor"), ("native_executor", "native executor"))
    ]
    megabytes = f"check of {result.figures['megabytes']} MB, ms"
    return markdown((megabytes, "first since the boot", "checked before since the boot"), rows)


def fuzzing(*results: Result) -> list[str]:
    """What came of each run of the fuzzing harness."""
    rows = []
    for result in results:
        figures = result.figures
        first, after = figures["seeds"]
        rows.append(
            (
                f"{figures['target']}, seeds {first:,} to {after - 1:,}",
                f"{figures['cases']:,}",
                f"{sum(figures['outcomes'].get(kind, 0) for kind in ('ok', 'answered')):,}",
                figures["violations"],
                f"{figures['worst_s']:.1f} s",
                f"{max(figures['worst_process_bytes'], figures['worst_case_bytes']) / 1e9:.1f} GB",
            )
        )
    head = ("target", "cases", "accepted", "violations", "longest", "most memory of a process")
    return markdown(head, rows)


def emulated_types(result: Result) -> list[str]:
    """Instructions of models by numeric type, their share of those in single precision, and their rules."""
    rows = []
    for model, types in result.figures["models"].items():
        for name, found in types.items():
            if found["instructions"] is None:
                rows.append((model, name, "", "", "", found["error"]))
                continue
            share = "" if found["ratio"] is None else f"{found['ratio']:.3f}"
            most = sorted(found["rules"].items(), key=lambda item: item[1], reverse=True)[:_RULES_SHOWN]
            rules = ", ".join(f"{rule} {count / found['instructions']:.0%}" for rule, count in most)
            millions = f"{found['instructions'] / 1e6:.1f}"
            rows.append((model, name, millions, share, rules, _outputs(found.get("deployment"))))
    return markdown(
        (
            "model",
            "type",
            "instructions, millions",
            "over fp32's",
            "most by rule",
            "error on the emulated board, and what is allowed",
        ),
        rows,
    )


def _outputs(deployment: Mapping[str, Any] | None) -> str:
    """What verifying on an emulated board found."""
    if deployment is None:
        return "not deployed"
    if "error" in deployment:
        return str(deployment["error"])
    return f"{deployment['max_rel_err']:.1e} of {deployment['tolerance']:.1e}"


def memory(result: Result) -> list[str]:
    """What a process grows by when it loads and runs a model, ours and ONNX Runtime's."""
    rows = [
        (
            entry["model"],
            f"{entry['planned']['peak_bytes'] / 2**20:.1f}",
            f"{entry['ours_bytes']['steady'] / 2**20:.1f}",
            f"{entry['onnxruntime_bytes']['steady'] / 2**20:.1f}",
            f"{entry['steady_ratio']:.2f}",
            f"{entry['peak_ratio']:.2f}",
        )
        for entry in result.figures["models"]
    ]
    mean = result.figures
    rows.append(("geometric mean", "", "", "", f"{mean['steady_ratio']:.2f}", f"{mean['peak_ratio']:.2f}"))
    head = ("model", "stated, MB", "ours, MB", "ONNX Runtime, MB", "ratio", "ratio of the peaks")
    return markdown(head, rows)


def threads(result: Result) -> list[str]:
    """What several threads gain, and what their parallel loops lose, in microseconds of a run."""
    lost = ("waiting_us", "uneven_us", "moved_us", "between_us")
    rows = []
    for model, found in result.figures["models"].items():
        least = found["least_ms"]["one"] / found["least_ms"]["shared"]
        rows.append(
            (
                model,
                *(significant(found[one]) for one in ("one_ms", "shared_ms")),
                f"{found['speed']['value']:.2f}, {least:.2f}",
                found["loops"],
                *(f"{found[one]:.0f}" for one in lost),
            )
        )
    times = ("ms, one thread", f"ms, {result.figures['threads']} threads", "times as fast: medians, least")
    what = ("waiting", "uneven parts", "moved between cores", "outside of loops")
    return markdown(("model", *times, "loops", *what), rows)


def process_replay(result: Result) -> list[str]:
    """What a process replay compared, and at which stages it found differences."""
    figures = result.figures
    changed = [f"{number} first in {stage}" for stage, number in figures["differences"].items()]
    rows = [
        ("models and operators on their targets", figures["models_on_targets"]),
        ("targets", figures["targets"]),
        ("kernels", figures["kernels"]),
        ("bundles", figures["bundles"]),
        ("not compiled", figures["not_compiled"]),
        ("differences", "; ".join(changed) or "none"),
    ]
    only = f", {figures['only']} only" if figures["only"] else ""
    base, head = short_commit(figures["base"]), short_commit(figures.get("head", ""))
    commits = f"{base} to {head}" if head else f"against {base}"
    return markdown((f"set {figures['set']}{only}, {commits}", "number"), rows)
