"""Instruction counts of a model, for devices whose times mean nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from host.emulation.counting import KernelCall, count_model
from host.errors import EngineError

if TYPE_CHECKING:
    from host.compare.comparison import EngineComparison
    from host.compile.static_model import Compiled
    from host.model import LoweredModel

_ARCHITECTURE = "aarch64"


def with_instructions(
    comparison: EngineComparison, made: Compiled | None, architecture: str, note: Callable[[str], None]
) -> EngineComparison:
    """The comparison with the instruction count of the compiled model, if it can be counted.

    Args:
        comparison: on such a device.
        made: the compiled model.
        architecture: of the device; the counter does not know the vectors of RISC-V.
        note: receives the reason if nothing is counted.
    """
    ours = comparison.results.get("tvm")
    if made is None or ours is None or ours.measurement is None:
        return comparison
    if architecture != _ARCHITECTURE or made.lowered.signature.length is not None:
        note(f"instructions are counted for models of one length on {_ARCHITECTURE}")
        return comparison
    try:
        counted = count_model(made.library, kernel_calls(made.lowered))
    except EngineError as error:
        note(f"instructions are not counted: {error}")
        return comparison
    measured = replace(ours.measurement, instructions=float(counted))
    results = {**comparison.results, "tvm": replace(ours, measurement=measured)}
    return replace(comparison, results=results)


def kernel_calls(lowered: LoweredModel) -> list[KernelCall]:
    """The kernels of a model as it calls them."""
    return [
        KernelCall(
            task.name,
            tuple((tuple(int(size) for size in one.shape), str(one.dtype)) for one in task.function.params),
            task.weight,
        )
        for task in lowered.tasks
    ]
