"""The parts of the operator benchmark that need no device."""

from __future__ import annotations

import math
import random
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm_ffi

from benchmarks.operators.comparison import relative_error
from benchmarks.operators.configurations import CLASSES, OPERATORS, Operator, select
from benchmarks.operators.figures import ratios, summary
from benchmarks.operators.library import layout_share
from benchmarks.operators.others import OTHERS
from benchmarks.operators.rank import Ranking, per_class, spearman
from benchmarks.operators.subject import make_model
from host.schedules import space_for
from host.statistics import geometric_mean
from research.baselines.own_space import decisions_of, mutated, program_of
from tests.unit.schedules import functions as fn


def test_operators_of_the_issue() -> None:
    assert len({operator.name for operator in OPERATORS}) == 32
    assert set(Counter(operator.kind for operator in OPERATORS)) == set(CLASSES)
    assert any(operator.inputs[0][0] == 8 for operator in OPERATORS)


def test_selection_by_name_and_class() -> None:
    assert select(()) == OPERATORS
    assert select(["others"], (*OPERATORS, *OTHERS)) == OTHERS
    assert len({operator.name for operator in (*OPERATORS, *OTHERS)}) == len(OPERATORS) + len(OTHERS)
    assert [operator.name for operator in select(["gemv_768x3072"])] == ["gemv_768x3072"]
    assert {operator.kind for operator in select(["softmax", "gemv_768x3072"])} == {"softmax", "gemv"}
    with pytest.raises(KeyError, match="gemw"):
        select(["gemw"])


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_every_operator_is_one_node(operator: Operator) -> None:
    bare, images_last = make_model(operator, False), make_model(operator, operator.image)
    assert [node.op_type for node in bare.graph.node] == [operator.node]
    moved = [node.op_type for node in images_last.graph.node if node.op_type != operator.node]
    assert moved == (["Transpose", "Transpose"] if operator.image else [])
    assert [w.raw_data for w in bare.graph.initializer] == [w.raw_data for w in images_last.graph.initializer]


def test_reordering_is_told_apart(tmp_path: Path) -> None:
    """A pooling works in the library's blocked layout, a matrix product does not."""
    pool = Operator(
        "pool",
        "pooling",
        "test",
        "MaxPool",
        ((1, 64, 32, 32),),
        (),
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        image=True,
    )
    dense = Operator("dense", "matmul", "test", "MatMul", ((8, 32),), ((32, 16),))
    for operator in (pool, dense):
        path = tmp_path / f"{operator.name}.onnx"
        onnx.save(make_model(operator, False), str(path))
        share = layout_share(path, [np.ones(operator.inputs[0], np.float32)], 1)
        assert (0.0 < share < 1.0) if operator is pool else share == 0.0


def test_mutation_changes_one_decision_and_stays_legal() -> None:
    space = space_for(fn.task(fn.dense(24, 64, 32)), fn.board().hardware)
    generator = random.Random(0)
    values = space.sample(generator)
    for _ in range(50):
        changed = mutated(space, values, generator)
        assert changed is not None and space.legal(changed)
        assert sum(changed[name] != values[name] for name in values) == 1
        values = changed


def test_programs_carry_their_decisions_and_leave_the_task_alone() -> None:
    from research.metaschedule import workload_module

    task = fn.task(fn.dense(24, 64, 32))
    before = tvm_ffi.structural_hash(task.function)
    space = space_for(task, fn.board().hardware)
    values = space.sample(random.Random(1))
    schedule = program_of(space, values, workload_module(task.function, 1.0))
    assert decisions_of(schedule.trace) == values
    assert tvm_ffi.structural_hash(task.function) == before
    with pytest.raises(KeyError):
        decisions_of(space.apply(space.candidate(values, "random")).trace)


def test_spearman() -> None:
    assert spearman([1, 2, 3, 4], [10, 20, 30, 400]) == pytest.approx(1.0)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1.0)
    # Ties share their mean rank: (1.5, 1.5, 3) against (1, 2, 3).
    assert spearman([5, 5, 7], [1, 2, 3]) == pytest.approx(math.sqrt(3) / 2)
    assert math.isnan(spearman([1, 1, 1], [1, 2, 3]))


def test_a_class_is_not_ranked_by_the_size_of_its_operators() -> None:
    small = Ranking((1.0, 2.0, 3.0), (3.0, 2.0, 1.0))
    large = Ranking((100.0, 200.0, 300.0), (300.0, 200.0, 100.0))
    assert per_class({"matmul": [small, large], "gemv": [Ranking((1.0,), (1.0,))]}) == {
        "matmul": pytest.approx(-1.0),
        "gemv": None,
    }


def test_ratios_are_of_speed_within_a_round() -> None:
    rounds = {"gensor": [1.0, 10.0, 2.0], "gensor10": [1.0, 5.0, 2.0], "library": [2.0, 20.0, 4.0]}
    found = ratios(rounds)
    assert found["gensor/library"] == 2.0
    assert found["gensor10/gensor"] == 1.0
    assert "gensor/gensor10" not in found


def test_summary_over_operators() -> None:
    operators = {
        "a": {"class": "gemv", "gensor": {"construct_s": 0.1}, "ratios": {"gensor/library": 0.5}},
        "b": {"class": "matmul", "gensor": {"construct_s": 0.4}, "ratios": {"gensor/library": 2.0}},
        "c": {"class": "matmul", "error": "not one function", "ratios": {}},
    }
    figures = summary(operators)
    assert figures["geomean"] == {"gensor/library": pytest.approx(1.0)}
    assert figures["worst"] == {"gensor/library": ["a", 0.5]}
    assert figures["classes"]["gensor/library"]["matmul"] == pytest.approx(2.0)
    assert figures["construct"] == {"gensor": {"max_s": 0.4, "geomean_s": pytest.approx(0.2)}}
    assert geometric_mean([4.0]) == pytest.approx(4.0)


def test_errors_are_relative_to_the_largest_value() -> None:
    expected = np.array([1.0, -4.0])
    assert relative_error(np.array([1.0, -4.4]), expected) == pytest.approx(0.1)
    assert relative_error(np.array([1.0]), expected) == math.inf
    assert relative_error(np.array([1.0, math.nan]), expected) == math.inf
