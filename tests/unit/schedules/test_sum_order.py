"""Programs of a language model's functions, and the order in which they add up a row."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from host.compile.static_model import Plan, lower_model, propose, with_sums_of_step
from host.importers.decoders.importer import import_decoder
from host.lowering.tasks import calls_of
from host.model import LoweredModel, Task
from host.progress import Silence, StageClock
from tests.unit.importers.decoders.models import save
from tests.unit.tuning.simulated import profile


def partials(lowered: LoweredModel, plan: Plan, entry: str) -> list[tuple[int, int]]:
    """Elements of a row and partial sums of the norms that a function calls."""
    called = calls_of(lowered.module[entry])
    found = set()
    for task in lowered.tasks:
        candidate = plan.chosen[task.workload_hash]
        if task.name in called and candidate.rule == "rowwise":
            found.add((stage_depth(plan, task), candidate.value("partials")))
    return sorted(found)


def stage_depth(plan: Plan, task: Task) -> int:
    """Elements that the first reduction of a task adds up."""
    stages = plan.spaces[task.workload_hash].workload.stages
    axes = next(stage.axes for stage in stages if stage.reduction)
    return math.prod(axis.extent for axis in axes if axis.reduce)


def test_rows_of_drafts_and_of_several_texts_are_added_up_as_in_a_step(tmp_path: Path) -> None:
    save(tmp_path, "qwen3", hidden_size=256, head_dim=64)
    model = import_decoder(tmp_path, 32, 16, verified=3, sequences=2)
    clock, device = StageClock(Silence()), profile()
    lowered = lower_model(model, device, clock)
    made = propose(lowered, device, 0, clock)
    before = {entry: partials(lowered, made, entry) for entry in ("main", "prefill", "verify", "together")}
    assert len(before["main"]) == 2 and before["main"] == before["verify"] == before["together"]
    # As if measuring had chosen others for the step.
    chosen = dict(made.chosen)
    for task in lowered.tasks:
        space, candidate = made.spaces[task.workload_hash], made.chosen[task.workload_hash]
        if task.name in calls_of(lowered.module["main"]) and candidate.rule == "rowwise":
            values = {**dict(candidate.decisions), "partials": 1}
            assert candidate.value("partials") > 1 and space.legal(values)
            chosen[task.workload_hash] = space.candidate(values, "test")
    plan = with_sums_of_step(lowered, replace(made, chosen=chosen))
    for entry in ("main", "verify", "together"):
        assert partials(lowered, plan, entry) == [(depth, 1) for depth, _ in before["main"]]
    # The rows of a prompt may be rounded otherwise anyway.
    assert partials(lowered, plan, "prefill") == before["prefill"]
