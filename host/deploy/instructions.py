"""Instructions of a model on an emulated device, in place of the time that nobody can know there."""

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
    """The comparison with the instructions of ours, where they can be counted.

    Args:
        comparison: on an emulated device.
        made: what ours was compiled to.
        architecture: of the device; vectors of RISC-V are unknown to the counter.
        note: told why nothing is counted.
    """
    ours = comparison.results.get("tvm")
    if made is None or ours is None or ours.measurement is None:
        return comparison
    if architecture != _ARCHITECTURE or made.lowered.signature.length is not None:
        note(f"instructions are counted for models of one length on {_ARCHITECTURE}")
        return comparison
    try:
        counted = count_model(made.library, _calls(made.lowered))
    except EngineError as error:
        note(f"instructions are not counted: {error}")
        return comparison
    measured = replace(ours.measurement, instructions=float(counted))
    results = {**comparison.results, "tvm": replace(ours, measurement=measured)}
    return replace(comparison, results=results)


def _calls(lowered: LoweredModel) -> list[KernelCall]:
    return [
        KernelCall(
            task.name,
            tuple((tuple(int(size) for size in one.shape), str(one.dtype)) for one in task.function.params),
            task.weight,
        )
        for task in lowered.tasks
    ]
