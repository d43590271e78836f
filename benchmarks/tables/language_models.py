"""Tables of the benchmarks of language models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.result_file import Result
from benchmarks.tables.table import markdown, significant

_ENGINES = {"edgetlm": "ours", "llama.cpp-no-flash": "llama.cpp without flash attention"}
_SPEEDS = ("decode", "decode_long", "prefill")
_HEAD = (
    "model, engine",
    "decode behind 128, tokens/s",
    "behind 1984",
    "prefill of 512, tokens/s",
    "first token, s",
    "peak memory, MB",
    "divergence",
    "agrees with transformers",
    "of the bandwidth",
    "of the arithmetic",
)


def language_models(result: Result) -> list[str]:
    """A row for each model and engine, and one with our speed to the best of the others."""
    rows: list[tuple[str, ...]] = []
    for name, entry in result.figures["models"].items():
        if "error" in entry:
            rows.append((name, entry["error"], *[""] * (len(_HEAD) - 2)))
            continue
        rows += [_engine(name, engine, entry) for engine in entry["decode_tokens_s"]]
        if entry["speedup"]:
            speeds = [_speed(entry, kind) for kind in _SPEEDS]
            rows.append((f"{name}, ours to the best other", *speeds, *[""] * 6))
        rows += [(f"{name}, {one}", f"left out: {why}", *[""] * 8) for one, why in entry["notes"].items()]
    return markdown(_HEAD, rows)


def _engine(name: str, engine: str, entry: Mapping[str, Any]) -> tuple[str, ...]:
    speeds = [entry.get(f"{kind}_tokens_s", {}).get(engine) for kind in _SPEEDS]
    ours = engine == "edgetlm"
    share = entry["bandwidth_share"] if ours else entry.get("peer_bandwidth_share", {}).get(engine)
    agrees = entry["verified"] if ours else entry["peer_agrees"][engine]
    return (
        f"{name}, {_ENGINES.get(engine, engine)}",
        *("-" if value is None else significant(value) for value in speeds),
        significant(entry["first_token_s"][engine]),
        f"{entry['peak_memory_mb'][engine]:.0f}",
        f"{entry['kl_divergence'][engine]:.1e}",
        "yes" if agrees else "no",
        f"{share:.0%}" if share is not None else "",
        f"{entry['prefill_peak_share']:.0%}" if ours and "prefill_peak_share" in entry else "",
    )


def _speed(entry: Mapping[str, Any], kind: str) -> str:
    if kind not in entry["speedup"]:
        return "-"
    low, high = entry["bounds"][kind]
    bound = "" if low is None else f", {low:.2f} to {high:.2f}"
    return f"{entry['speedup'][kind]:.2f}{bound}"
