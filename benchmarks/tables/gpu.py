"""Tables of kernels for GPUs."""

from __future__ import annotations

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
