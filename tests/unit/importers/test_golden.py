from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from host.errors import EngineError, ModelFileError
from host.importers import half_spread
from host.importers.golden import (
    GoldenOptions,
    decided,
    make_golden,
    relative_distance,
    with_margins,
    with_spread,
)
from host.importers.random_inputs import STYLES, InputRange, draw
from host.model import GoldenCase, TensorSpec

REAL = InputRange(TensorSpec("x", (4, 4), "float32"))
NUMBER = InputRange(TensorSpec("n", (4,), "int64"))
PATH = Path("model.onnx")

Cases = Sequence[Sequence[np.ndarray]]


def reference(function: Callable[..., np.ndarray]) -> Callable[[str, Path, Cases], list[list[np.ndarray]]]:
    return lambda engine, path, cases: [[function(*arrays)] for arrays in cases]


def test_the_same_seed_draws_the_same_inputs() -> None:
    first = draw([REAL, NUMBER], STYLES[0], np.random.default_rng(3))
    again = draw([REAL, NUMBER], STYLES[0], np.random.default_rng(3))
    other = draw([REAL, NUMBER], STYLES[0], np.random.default_rng(4))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])


def test_types_shapes_and_bounds() -> None:
    specs = [
        InputRange(TensorSpec("ids", (2, 50), "int64"), 0, 7),
        InputRange(TensorSpec("mask", (2, 50), "int32"), mask=True),
        InputRange(TensorSpec("flag", (50,), "bool")),
        InputRange(TensorSpec("half", (3,), "float16")),
        InputRange(TensorSpec("bytes", (50,), "uint8")),
        InputRange(TensorSpec("brain", (3,), "bfloat16")),
    ]
    made = draw(specs, STYLES[0], np.random.default_rng(0))
    for entry, array in zip(specs, made, strict=True):
        assert array.shape == entry.spec.shape and array.dtype.name == entry.spec.dtype
    assert made[0].min() >= 0 and made[0].max() == 6
    assert set(np.unique(made[1])) <= {0, 1} and (made[1][:, 0] == 1).all()
    assert set(np.unique(made[2])) == {False, True}


def test_inputs_are_drawn_until_the_outputs_differ() -> None:
    """A model that sees only large values: inputs of the first style all give zeros."""
    golden = make_golden(
        "onnxruntime",
        PATH,
        [REAL],
        GoldenOptions(reference=reference(lambda x: np.maximum(np.abs(x) - 8, 0))),
    )
    outputs = [case.outputs[0] for case in golden]
    assert len(outputs) == 3
    assert not any(np.array_equal(a, b) for a, b in ((outputs[0], outputs[1]), (outputs[1], outputs[2])))


def test_inputs_are_drawn_until_the_outputs_are_finite() -> None:
    def root(x: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return np.sqrt(x)

    golden = make_golden("onnxruntime", PATH, [REAL], GoldenOptions(reference=reference(root)))
    assert all(np.isfinite(case.outputs[0]).all() for case in golden)


def test_outputs_that_never_differ_are_kept() -> None:
    golden = make_golden(
        "onnxruntime",
        PATH,
        [REAL],
        GoldenOptions(cases=2, reference=reference(lambda x: np.ones(3, np.float32))),
    )
    assert [case.outputs[0].tolist() for case in golden] == [[1, 1, 1]] * 2


def test_whole_numbers_out_of_range_are_drawn_smaller() -> None:
    """The reference refuses what an unknown table would refuse."""

    def table(n: np.ndarray) -> np.ndarray:
        if n.max() > 3:
            raise EngineError("index out of range")
        return np.array([10.0, 20, 30, 40])[n]

    golden = make_golden("onnxruntime", PATH, [NUMBER], GoldenOptions(reference=reference(table)))
    assert all(case.inputs[0].max() <= 3 for case in golden)


def test_a_runtime_that_refuses_everything_is_an_error() -> None:
    def refuse(x: np.ndarray) -> np.ndarray:
        raise EngineError("no such operator")

    with pytest.raises(EngineError, match="no such operator"):
        make_golden("onnxruntime", PATH, [REAL], GoldenOptions(reference=reference(refuse)))


def test_given_samples_are_used() -> None:
    samples = [[np.full((4, 4), 2, np.float32)], [np.full((4, 4), 3, np.float32)]]
    golden = make_golden(
        "onnxruntime", PATH, [REAL], GoldenOptions(samples=samples, reference=reference(lambda x: x * 2))
    )
    assert [case.outputs[0][0, 0] for case in golden] == [4, 6]


def _unoptimised(unstable: Callable[[np.ndarray], bool]) -> GoldenOptions:
    """An engine whose two ways part by a hundredth of the largest output where inputs are unstable."""

    def unoptimised(engine: str, path: Path, cases: Cases) -> list[list[np.ndarray]]:
        return [
            [arrays[0] + (np.abs(arrays[0]).max() / 100 if unstable(arrays[0]) else 0)] for arrays in cases
        ]

    return GoldenOptions(reference=reference(lambda x: x), unoptimised=unoptimised)


def test_inputs_with_unstable_outputs_are_replaced_where_there_are_others() -> None:
    golden = make_golden("onnxruntime", PATH, [REAL], _unoptimised(lambda x: bool(x.flat[0] > 0)))
    assert len(golden) == 3
    assert all(case.inputs[0].flat[0] <= 0 and case.spread == 0.0 for case in golden)


def test_a_model_that_is_never_stable_keeps_its_spread() -> None:
    golden = make_golden("onnxruntime", PATH, [REAL], _unoptimised(lambda x: True))
    assert [case.spread for case in golden] == pytest.approx([0.05] * 3, rel=1e-5)


def test_a_model_that_is_stable_is_verified_as_always() -> None:
    stable = make_golden("onnxruntime", PATH, [REAL], _unoptimised(lambda x: False))
    plain = make_golden("onnxruntime", PATH, [REAL], GoldenOptions(reference=reference(lambda x: x)))
    assert all(case.spread == 0.0 for case in stable)
    for a, b in zip(stable, plain, strict=True):
        np.testing.assert_array_equal(a.inputs[0], b.inputs[0])


def test_an_engine_that_only_runs_rewritten_graphs_says_nothing_of_stability() -> None:
    def refuse(engine: str, path: Path, cases: Cases) -> list[list[np.ndarray]]:
        raise EngineError("no kernel for this node")

    options = GoldenOptions(reference=reference(lambda x: x), unoptimised=refuse)
    assert [case.spread for case in make_golden("onnxruntime", PATH, [REAL], options)] == [0.0] * 3


def test_a_model_that_draws_random_numbers_is_refused() -> None:
    draw_of = np.random.default_rng(0)
    random = reference(lambda x: x + draw_of.normal(size=x.shape).astype(np.float32))
    with pytest.raises(ModelFileError, match=r"^model\.onnx: its outputs differ from run to run"):
        make_golden("onnxruntime", PATH, [REAL], GoldenOptions(reference=random, unoptimised=random))


def test_a_model_whose_rewritten_graph_parts_far_is_not_taken_for_random() -> None:
    options = GoldenOptions(reference=reference(lambda x: x), unoptimised=reference(lambda x: x + 1))
    assert min(case.spread for case in make_golden("onnxruntime", PATH, [REAL], options)) > 0.1


def test_a_model_that_draws_random_numbers_is_refused_with_samples_too() -> None:
    generator = np.random.default_rng(0)
    samples = [[np.ones((4, 4), np.float32)]] * 2
    random = reference(lambda x: generator.standard_normal(x.shape).astype(np.float32))
    with pytest.raises(ModelFileError, match="its outputs differ from run to run"):
        make_golden("onnxruntime", PATH, [REAL], GoldenOptions(samples=samples, reference=random))


def test_sums_between_two_steps_that_both_ways_round_alike_show_under_moved_inputs() -> None:
    """A model that finds its scale while it runs, in whose engine both ways are the same."""
    x = np.array([[2.5] * 16 + [3.5] * 16 + [255.0]], np.float32)  # in steps of 1

    def dynamic(value: np.ndarray) -> np.ndarray:
        scale = np.float32(value.max() / np.float32(255))
        return np.asarray(np.rint(value / scale)[:, :-1] * scale)

    case = GoldenCase((x,), (dynamic(x),))
    (found,) = with_spread([case], "onnxruntime", PATH, reference(dynamic))
    assert found.spread == pytest.approx(0.25, rel=0.01)


def test_distance_of_integers_that_stand_for_real_numbers() -> None:
    assert relative_distance(np.array([100, -50], np.int8), np.array([100, -51], np.int8)) == 0.01
    assert relative_distance(np.array([200], np.uint8), np.array([199], np.uint8)) == 0.005
    assert relative_distance(np.array([100], np.int64), np.array([99], np.int64)) == 0.0


def test_whole_numbers_are_not_moved() -> None:
    """A position that is less by a rounding is another one, which says nothing of the model."""

    def table(value: np.ndarray) -> np.ndarray:
        return np.asarray(np.sin(np.trunc(value)))

    x = np.arange(1, 9, dtype=np.float32)
    (found,) = with_spread([GoldenCase((x,), (table(x),))], "onnxruntime", PATH, reference(table))
    assert found.spread == 0


def test_classes_of_a_model_in_floats_have_no_spread() -> None:
    """One that falls to another class let all pass that are off by a fifth of the largest."""
    classes = np.array([3, 20, 7, 1], np.uint8)
    other = np.array([3, 5, 7, 1], np.uint8)
    options = GoldenOptions(
        cases=1,
        reference=lambda engine, path, inputs: [[classes]] * len(inputs),
        unoptimised=lambda engine, path, inputs: [[other]] * len(inputs),
    )
    assert make_golden("onnxruntime", PATH, [REAL], options)[0].spread == 0
    assert half_spread._moved([classes], [other]) == 0
    quantised = GoldenCase((np.zeros(1, np.int8),), (classes,))
    assert with_spread([quantised], "onnxruntime", PATH, lambda *_: [[other]])[0].spread == 0.75


@pytest.mark.parametrize(
    ("dtype", "whole", "spread", "shares"),
    [
        (np.uint8, (), 0.75, (None,)),
        (np.uint8, (0,), 0.0, (0.25,)),
        (np.int64, (), 0.0, (0.25,)),
        (np.float32, (0,), 0.75, (None,)),
    ],
)
def test_classes_of_a_quantised_model_are_counted(
    dtype: type, whole: tuple[int, ...], spread: float, shares: tuple[float | None, ...]
) -> None:
    classes, other = (np.array([3, last, 7, 1], dtype) for last in (20, 5))
    case = GoldenCase((np.zeros(1, np.int8),), (classes,))
    (found,) = with_spread([case], "onnxruntime", PATH, lambda *_: [[other]], None, whole)
    assert (found.spread, found.shares) == (spread, shares)


def test_inputs_whose_class_is_undecided_are_left_out() -> None:
    given = (np.zeros(1, np.float32),)
    sure, unsure = (GoldenCase(given, (np.array([3]),), shares=(share,)) for share in (0.0, 1.0))
    assert decided([sure, unsure, sure]) == (sure, sure)
    assert decided([unsure, unsure]) == (unsure, unsure)


def test_undecided_classes_of_a_model_in_floats_are_replaced_where_there_are_others() -> None:
    def turned(engine: str, path: Path, cases: Cases) -> list[list[np.ndarray]]:
        return [[np.array([int(arrays[0].flat[0] > 0)])] for arrays in cases]

    options = GoldenOptions(reference=lambda engine, path, cases: [[np.array([1])] for _ in cases])
    golden = make_golden("onnxruntime", PATH, [REAL], replace(options, unoptimised=turned))
    assert all(case.inputs[0].flat[0] > 0 and case.shares == (0.0,) for case in golden)


@pytest.mark.parametrize(("size", "shares"), [(2_000, (0.0025, 0.0025)), (500, (0.002, 0.0))])
def test_single_pixels_between_two_steps_are_allowed_in_all_cases(
    size: int, shares: tuple[float, float]
) -> None:
    """An image of bytes whose original's ways differed in one pixel of one case refused three in another."""
    image = np.zeros(size, np.uint8)
    other = image.copy()
    other[0] = 1
    golden = [GoldenCase((), (image,))] * 2
    found = with_margins(golden, "onnxruntime", PATH, lambda *_: [[other], [image]])
    assert tuple(case.shares[0] for case in found) == pytest.approx(shares)


def test_a_quantised_model_that_takes_too_long_with_moved_inputs_keeps_its_spread() -> None:
    calls: list[int] = []

    def once(engine: str, path: Path, inputs: Sequence[Any]) -> list[list[np.ndarray]]:
        calls.append(len(inputs))
        if len(calls) > 1:
            raise EngineError("no outputs within 600 s")
        return [[np.array([1.0, 0.5], np.float32)]]

    case = GoldenCase((np.array([0.3], np.float32),), (np.array([1.0, 0.25], np.float32),))
    (found,) = with_spread([case], "onnxruntime", PATH, once)
    assert calls == [1, 3] and found.spread == 0.25
