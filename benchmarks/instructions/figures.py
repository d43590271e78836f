"""From counted programs to the figures."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from host.errors import ScheduleError
from host.statistics import geometric_mean
from targets import HardwareModel

SCHEMA = "edgetlm.instructions/2"


@dataclass(frozen=True)
class Counted:
    """The instructions and cycles of one call of a program.

    Attributes:
        instructions: executed, exactly.
        estimated_cycles: executions of basic blocks times their cycles by llvm-mca.
        loop_instructions, loop_fused: of one iteration of the hot loop, and multiply-adds among them.
        loop_cycles: of one iteration by llvm-mca; None where nothing loops.
        loop_share: part of the executed instructions that is in the hot loop.
    """

    instructions: int
    estimated_cycles: float
    loop_instructions: int
    loop_fused: int
    loop_cycles: float | None
    loop_share: float


def entry_of(
    kind: str,
    flops: float,
    gensor: Counted,
    samples: Sequence[Counted],
    failed: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The results of one operator.

    Args:
        kind: its class.
        flops: floating-point operations of one call.
        gensor: the first proposal.
        samples: random programs of the same space.
        failed: random programs without figures, with the reason.

    Raises:
        ScheduleError: no random program has figures.
    """
    if not samples:
        raise ScheduleError(f"none of {len(failed)} random programs has figures")
    best = min(samples, key=lambda counted: counted.estimated_cycles)
    return {
        "class": kind,
        "mflop": flops / 1e6,
        "gensor": _entry(gensor, flops),
        "random64": {
            "programs": len(samples),
            "failed": [dict(program) for program in failed],
            "best_instructions": min(counted.instructions for counted in samples),
            "best_cycles": best.estimated_cycles,
            "median_instructions": statistics.median(counted.instructions for counted in samples),
            "median_cycles": statistics.median(counted.estimated_cycles for counted in samples),
            "best": _entry(best, flops),
        },
    }


def _entry(counted: Counted, flops: float) -> dict[str, Any]:
    return {
        "instructions": counted.instructions,
        "per_flop": counted.instructions / flops,
        "mca_cycles": counted.loop_cycles,
        "estimated_cycles": counted.estimated_cycles,
        "hot_loop": {
            "instructions": counted.loop_instructions,
            "fused_multiply_adds": counted.loop_fused,
            "share_of_instructions": counted.loop_share,
        },
    }


def least_cycles(flops: float, hardware: HardwareModel) -> float:
    """Cycles in which a core could do the arithmetic alone, two operations to each multiply-add."""
    return flops / (2.0 * hardware.lanes * hardware.fma_per_cycle)


def summary(operators: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Geometric means of Gensor's figures over the random programs', and the worst operator of each."""
    ratios: dict[str, dict[str, float]] = {}
    for name, entry in operators.items():
        if "error" in entry:
            continue
        for ours, theirs, of in (
            ("instructions", "best_instructions", "instructions gensor/best"),
            ("instructions", "median_instructions", "instructions gensor/median"),
            ("estimated_cycles", "best_cycles", "cycles gensor/best"),
            ("estimated_cycles", "median_cycles", "cycles gensor/median"),
        ):
            ratios.setdefault(of, {})[name] = entry["gensor"][ours] / entry["random64"][theirs]
    return {
        "geomean": {of: geometric_mean(list(found.values())) for of, found in ratios.items()},
        "worst": {of: [*max(found.items(), key=lambda item: item[1])] for of, found in ratios.items()},
    }
