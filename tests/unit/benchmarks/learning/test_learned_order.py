"""The order of the programs of a task after ten records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.headroom import headrooms
from benchmarks.learned_estimate.order import TARGET, Teaching, figures_of, main, ordered_tasks, orders_of
from benchmarks.learned_estimate.withheld import kernels_of
from benchmarks.result_file import read_result
from benchmarks.tables import modelled
from host.schedules import DesignSpace
from research.collection.dataset import MeasuredProgram, append_programs
from tests.unit.benchmarks.learning.test_learned_estimate import collected


def flat_is_slow(space: DesignSpace, values: dict[str, int]) -> float:
    """A board on which the estimate is wrong about everything but one decision."""
    return 1e-3 / values["rows"] + 1e-6 * values["vectors"]


def measured_twice(one: MeasuredProgram) -> MeasuredProgram:
    return replace(one, times_s=(one.times_s[0],) * 4)


def test_ten_records_of_a_task_order_its_other_programs() -> None:
    programs = collected(flat_is_slow)
    tasks = ordered_tasks(programs)
    assert len(tasks) == 12 and {len(one.measured) for one in tasks} == {14}
    found = {}
    for task in tasks:
        own = [one for one in tasks if one.model == task.model]
        teaching = Teaching(programs, own, 100, 0)
        assert task.measured[0].task not in {one.program.task for one in teaching.of("tiled")}
        found["here", task.kind, task.measured[0].task] = orders_of(task, teaching, 0)
    figures = figures_of(found)
    arms = figures["kinds"]["all"]
    assert arms["ten"]["mean"] > 0.5 > arms["t"]["mean"]
    assert arms["ten"]["mean"] > arms["shuffled"]["mean"] + 0.3
    assert arms["ten"]["reached"] == sum(one["ten"] >= TARGET for one in found.values())
    assert "repeated" not in arms, "one round says nothing of noise"
    assert figures["boards"]["here"]["ten"]["tasks"] == 12


def test_what_noise_leaves_is_shown_where_programs_were_measured_in_rounds() -> None:
    task = ordered_tasks([measured_twice(one) for one in collected()])[0]
    found = orders_of(task, Teaching((), [task], 100, 0), 0)
    assert found["repeated"] == pytest.approx(1.0)
    assert "others" not in found


def test_a_program_whose_decisions_were_written_in_another_order_is_the_same() -> None:
    programs = collected(flat_is_slow)
    turned = [replace(one, decisions=dict(reversed(one.decisions.items()))) for one in programs]
    both = [*programs, *turned]
    assert [one.measured for one in ordered_tasks(both)] == [one.measured for one in ordered_tasks(programs)]
    assert [len(one.programs) for one in kernels_of(both)] == [
        len(one.programs) for one in kernels_of(programs)
    ]
    assert headrooms("here", both) == [], "14 programs of a task are too few"


def test_a_product_of_one_row_is_a_kind_of_its_own() -> None:
    programs = [replace(one, name="fused_dense") for one in collected()]
    rows = ("rows", "rows2", "block", "block2")
    flat = [replace(one, decisions={**one.decisions, **dict.fromkeys(rows, 1)}) for one in programs]
    different = [
        replace(one, decisions={**one.decisions, "unroll": 1 + place % 14}) for place, one in enumerate(flat)
    ]
    assert {one.kind for one in ordered_tasks(programs)} == {"dense product"}
    assert {one.kind for one in ordered_tasks(different)} == {"vector product"}


def test_the_command_writes_a_result_and_its_table(tmp_path: Path) -> None:
    data, result = tmp_path / "board.jsonl", tmp_path / "order.json"
    append_programs(data, collected())
    main(["--data", str(data), "--records", "60", "--seeds", "1", "--json", str(result)])
    assert json.loads(result.read_text())["schema"] == "edgetlm.learned_order/1"
    lines = modelled.orders(read_result(result))
    assert lines[0].startswith("| kind | T |") and any(line.startswith("| all |") for line in lines)
