from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from host.compare.verification import first_difference, relative_error, sensitivity, untold, verify
from host.model import GoldenCase, Signature, TensorSpec
from host.transport import KernelOutputs

SIGNATURE = Signature(
    (TensorSpec("x", (2,), "float32"),),
    (TensorSpec("logits", (2,), "float32"), TensorSpec("label", (), "int64")),
)


def case(scale: float) -> GoldenCase:
    outputs = (np.array([scale, -scale / 2], np.float32), np.array(3))
    return GoldenCase((np.array([scale, 1], np.float32),), outputs)


class Device:
    """Gives the golden outputs, changed by a function of case and outputs."""

    def __init__(self, change: object = None) -> None:
        self.change = change
        self.calls = 0

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        outputs = [np.array(value) for value in case(float(inputs[0][0])).outputs]
        self.calls += 1
        return self.change(self.calls, outputs) if callable(self.change) else outputs


def test_relative_error_is_measured_against_the_largest_golden_value() -> None:
    golden = np.array([4.0, 0.001])
    assert relative_error(np.array([4.0, 0.003]), golden) == pytest.approx(0.0005)
    assert relative_error(golden, golden) == 0.0
    assert relative_error(np.array([0.5]), np.array([0.0])) == 0.5
    assert relative_error(np.zeros((0,)), np.zeros((0,))) == 0.0


def test_values_that_are_no_numbers_must_be_the_same_ones() -> None:
    golden = np.array([1.0, math.nan, math.inf])
    assert relative_error(golden.copy(), golden) == 0.0
    assert relative_error(np.array([1.0, math.nan, -math.inf]), golden) == math.inf
    assert relative_error(np.array([math.nan, math.nan, math.inf]), golden) == math.inf
    assert relative_error(np.array([1.0, 2.0, math.inf]), golden) == math.inf


def test_right_outputs_pass() -> None:
    device = Device()
    verdict, _ = verify(device, SIGNATURE, [case(1), case(2), case(3)])
    assert verdict.passed
    assert verdict.max_rel_err == 0.0
    assert device.calls == 3


def test_the_message_names_output_amount_and_case() -> None:
    def change(call: int, outputs: list[np.ndarray]) -> list[np.ndarray]:
        return [outputs[0] * np.float32(1.01), outputs[1]] if call == 2 else outputs

    verdict, worst = verify(Device(change), SIGNATURE, [case(1), case(2), case(3)])
    assert not verdict.passed
    assert worst == 1
    assert "'logits' differs by 0.01" in verdict.message
    assert "case 2" in verdict.message


def test_a_difference_that_is_hardly_too_large_is_told_from_what_is_allowed() -> None:
    """Two digits show 0.01 of both."""

    def change(_: int, outputs: list[np.ndarray]) -> list[np.ndarray]:
        return [outputs[0] * np.float32(1.01002), outputs[1]]

    verdict, _ = verify(Device(change), SIGNATURE, [replace(case(1), spread=5e-3)])
    assert "differs by 0.01002 of the largest golden value, allowed is 0.01 (case 1)" in verdict.message


def test_small_deviations_within_the_tolerance_pass() -> None:
    verdict, _ = verify(Device(lambda _, o: [o[0] * np.float32(1.0005), o[1]]), SIGNATURE, [case(1)])
    assert verdict.passed
    assert verdict.max_rel_err == pytest.approx(5e-4, rel=1e-2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda _, o: [o[0][:1], o[1]], "shape (1,) instead of (2,)"),
        (lambda _, o: [o[0].astype(np.float64), o[1]], "type float64 instead of float32"),
        (lambda _, o: [o[0], o[1] + 1], "'label' differs in 1 of 1 elements, allowed are 0 (case 1)"),
        (lambda _, o: o[:1], "1 outputs instead of 2"),
        (lambda _, o: [o[0] * np.float32(math.nan), o[1]], "'logits' differs by inf"),
    ],
)
def test_whatever_else_is_wrong_fails(change: object, words: str) -> None:
    verdict, _ = verify(Device(change), SIGNATURE, [case(1)])
    assert not verdict.passed
    assert words in verdict.message


def test_the_first_kernel_at_which_the_values_part_is_named() -> None:
    good = np.ones(4, np.float32)
    reference = [KernelOutputs(i, name, (good,)) for i, name in enumerate(("conv", "pool", "dense"))]
    wrong = [KernelOutputs(1, "pool", (good * 1.5,)), KernelOutputs(2, "dense", (good * 9,))]
    ours = [reference[0], *wrong]
    assert "first at kernel pool (call 2, off by 0.5)" in first_difference(ours, reference)
    assert "lowering is at fault, not a kernel" in first_difference(reference, reference)
    assert "what is rounded beside the weights" in first_difference(reference, reference, 5e-3)
    near = [KernelOutputs(0, "conv", (good * np.float32(1.005),))]
    assert "first at kernel conv" in first_difference(near, reference)
    assert "first at kernel" not in first_difference(near, reference, 5e-3)
    assert "is pool, unscheduled it is conv" in first_difference([ours[1]], reference)


def test_a_quantised_model_may_differ_as_its_original_runtime_does_from_itself() -> None:
    def moved(call: int, outputs: list[np.ndarray]) -> list[np.ndarray]:
        return [outputs[0] * np.float32(1.03), outputs[1]]

    strict, _ = verify(Device(moved), SIGNATURE, [case(1.0)])
    assert not strict.passed
    spread = [replace(case(1.0), spread=0.02)]
    loose, _ = verify(Device(moved), SIGNATURE, spread)
    assert loose.passed
    assert loose.tolerance == pytest.approx(0.04)
    narrow, _ = verify(Device(moved), SIGNATURE, [replace(case(1.0), spread=0.01)])
    assert not narrow.passed

    def wrong(call: int, outputs: list[np.ndarray]) -> list[np.ndarray]:
        return [outputs[0] * np.float32(1.5), outputs[1]]

    never, _ = verify(Device(wrong), SIGNATURE, [replace(case(1.0), spread=1.0)])
    assert not never.passed
    assert "allowed is 0.2, as its original runtime's own ways" in never.message


def _classes(share: float | None) -> tuple[Signature, GoldenCase]:
    signature = Signature((), (TensorSpec("classes", (100,), "int64"), TensorSpec("map", (100,), "uint8")))
    outputs = (np.arange(1000, 1100), np.arange(100, dtype=np.uint8))
    shares = () if share is None else (share, share)
    return signature, GoldenCase((np.zeros(1, np.float32),), outputs, spread=0.1, shares=shares)


class Changed:
    """Gives a case's outputs, of which some elements are one more in one of them."""

    def __init__(self, golden: GoldenCase, output: int, elements: int) -> None:
        self.golden, self.output, self.elements = golden, output, elements

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        outputs = [value.copy() for value in self.golden.outputs]
        outputs[self.output][: self.elements] += 1
        return outputs


@pytest.mark.parametrize(
    ("share", "output", "elements", "passes"),
    [
        (None, 0, 0, True),
        (None, 0, 1, False),
        (0.0, 0, 1, False),
        (0.0, 1, 1, False),
        (0.01, 0, 2, True),
        (0.01, 1, 3, False),
        (0.9, 0, 20, True),
        (0.9, 0, 21, False),
    ],
)
def test_classes_are_counted(share: float | None, output: int, elements: int, passes: bool) -> None:
    """Not by how far one class is from another, within what real numbers of the case are allowed."""
    signature, golden = _classes(share)
    verdict, _ = verify(Changed(golden, output, elements), signature, [golden])
    assert verdict.passed is passes
    if not passes:
        assert f"differs in {elements} of 100 elements" in verdict.message


class Function:
    """Gives one output, a function of the first input."""

    def __init__(self, function: Callable[[np.ndarray], np.ndarray]) -> None:
        self.function = function

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [self.function(inputs[0])]


def test_how_much_a_model_enlarges_a_change_of_its_inputs() -> None:
    values = np.linspace(1, 2, 50, dtype=np.float32)
    one = GoldenCase((values,), (values,))
    whole = GoldenCase((np.arange(5),), (np.arange(5),))
    assert sensitivity(Function(lambda x: x * 3 + 1), one) < 2e-6
    assert sensitivity(Function(lambda x: np.sin(x.astype(np.float64) * 1e8)), one) > 0.1
    assert sensitivity(Function(lambda x: x * 1000), whole) == 0.0


class Functions(Device):
    """Has functions beside main, whose outputs are wrong from a call on."""

    def run(self, inputs: Sequence[np.ndarray], function: str = "") -> list[np.ndarray]:
        return super().run(inputs)


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (2, "the function prefill is wrong"),
        (3, "the function verify is wrong, or prefill, whose state it reads"),
    ],
)
def test_a_function_whose_outputs_nobody_sees_is_named_too(first: int, said: str) -> None:
    """Cases behind it show the state that it has left, and the first of them may be of another function."""

    def change(call: int, outputs: list[np.ndarray]) -> list[np.ndarray]:
        return [outputs[0] * np.float32(1.5 if call >= first else 1), outputs[1]]

    golden = [
        replace(case(1), outputs=(), function="prefill"),
        case(2),
        replace(case(3), function="verify"),
    ]
    verdict, _ = verify(Functions(change), SIGNATURE, golden)
    assert verdict.message.endswith(f"; {said}")


def test_outputs_that_are_one_number_say_nothing() -> None:
    """A program that computes nothing gives them too."""

    def flat(value: float, label: int = 3) -> GoldenCase:
        return GoldenCase((np.zeros(2, np.float32),), (np.full(2, value, np.float32), np.array(label)))

    other = GoldenCase((), (np.zeros(4),), function="prefill")
    assert untold(SIGNATURE, [case(1), case(2), other]) == untold(SIGNATURE, [other]) == ""
    line = "output 'logits' is {} throughout in {} of the golden cases: there, the verification says nothing"
    assert untold(SIGNATURE, [flat(0.0), case(1), flat(0.0)]) == line.format("0", "2 of 3")
    assert untold(SIGNATURE, [flat(2.0), flat(2.0), other]) == line.format("2", "all")
    differing = line.format("one number, not always the same,", "all")
    assert untold(SIGNATURE, [flat(0.0), flat(math.nan), other]) == differing
    both = replace(SIGNATURE, outputs=(SIGNATURE.outputs[0], TensorSpec("mask", (2,), "bool")))
    masked = GoldenCase((), (np.full(2, math.nan), np.array([True, True])))
    found = untold(both, [masked])
    assert found.startswith(
        "output 'logits' is nan throughout in all of the golden cases, and 1 more are such: "
    )

    class Zeros:
        def run(self, inputs: Sequence[np.ndarray], function: str = "") -> list[np.ndarray]:
            return list(flat(0.0).outputs)

    verdict, _ = verify(Zeros(), SIGNATURE, [flat(0.0)])
    assert verdict.passed and verdict.remark == line.format("0", "all")
    assert verify(Device(), SIGNATURE, [case(1)])[0].remark == ""
