"""The program of each task of a model, and its proposer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from host.model import Layer


@dataclass(frozen=True)
class TaskOutcome:
    """One task of the model and the program that it got.

    Attributes:
        name: kernel name.
        workload_hash: the task.
        weight: calls in one run of the model.
        source: who made the program: "gensor", "tlm", "evolutionary", "random", "default".
        rule: rule of the design space, "" where none.
        decisions: what was decided.
        from_database: the program was found in the record store.
        reason: why the schedule is a default one; "" where it is not.
        flops: floating-point operations of one call.
        latency_us: microseconds of one call inside the running model; None where not measured.
        programs: how many there are to choose from, where the length is open.
        layers: of the model's file, which it computes over all its calls; empty where they are not known.
        processor: "cpu" where it runs there in a bundle for a GPU, else "".
        copied_bytes: that go from GPU to CPU or back in front of its calls, in one run; they are copied where
            the two have memories of their own.
    """

    name: str
    workload_hash: str
    weight: int
    source: str
    rule: str = ""
    decisions: Mapping[str, Any] = field(default_factory=dict)
    from_database: bool = False
    reason: str = ""
    flops: float = 0.0
    latency_us: float | None = None
    programs: int = 1
    layers: tuple[Layer, ...] = ()
    processor: str = ""
    copied_bytes: int = 0


def with_times(tasks: Sequence[TaskOutcome], kernel_times_s: Mapping[str, float]) -> tuple[TaskOutcome, ...]:
    """The tasks with the seconds of one call of each kernel, where it was measured."""
    return tuple(
        replace(task, latency_us=kernel_times_s[task.name] * 1e6) if task.name in kernel_times_s else task
        for task in tasks
    )
