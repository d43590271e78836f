"""Quantised weights: bounds of the error, layout, and values at the ends of half precision."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from host.importers.decoders.quantise import (
    GROUP,
    GROUPS,
    ZERO,
    Form,
    Quantised,
    block_of,
    dequantise,
    quantise,
)
from host.options import compile as options
from tests.decoders.operations import dequantised

_SHAPES = st.tuples(st.integers(1, 3), st.sampled_from([32, 64, 96]))
_VALUES = _SHAPES.flatmap(
    lambda shape: arrays.arrays(np.float32, shape, elements=st.floats(-1e5, 1e5, width=32))
)


def groups(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float64).reshape(len(values), -1, GROUP)


@settings(max_examples=80, deadline=None)
@given(_VALUES)
def test_eight_bits_are_off_by_half_a_step(values: np.ndarray) -> None:
    made = quantise(values, 8)
    assert made.weight.dtype == np.int8 and made.scales.dtype == np.float16 and made.weight.min() >= -127
    scales = made.scales.astype(np.float64)
    assert np.isfinite(scales).all()
    distance = np.abs(groups(dequantise(made)) - groups(values)).max(axis=-1)
    largest = np.abs(groups(values)).max(axis=-1)
    # The scale is rounded to half precision, and is at least the smallest number of that.
    step = np.maximum(largest / 127 * (1 + 2**-10), 2.0**-24)
    assert (distance <= 0.51 * np.maximum(step, scales)).all()
    assert ((scales == 0) == (largest == 0)).all()


@pytest.mark.parametrize(("bits", "group"), [(8, 64), (8, 128), (4, 64), (4, 128)])
def test_a_group_is_rounded_as_one(bits: int, group: int) -> None:
    """Equal to what each group of 32 would be, if all had the largest element of the group."""
    values = np.random.default_rng(0).standard_normal((3, 256)).astype(np.float32)
    values[:, ::32] = 4.0
    made, fine = quantise(values, bits, group), quantise(values, bits)
    assert made.form == Form(bits, block=group) and made.scales.shape == (3, 256 // group)
    if bits == 8:
        assert np.array_equal(made.weight, fine.weight)
    shared = values.reshape(3, -1, group)
    error = ((dequantise(made).reshape(shared.shape) - shared) ** 2).sum()
    other = ((dequantise(fine).reshape(shared.shape) - shared) ** 2).sum()
    assert other <= error <= 1.2 * other
    assert made.form.bytes_of(3, 256) == sum(one.nbytes for one in made.arrays)


@pytest.mark.parametrize(
    ("columns", "group", "expected"),
    [(256, 128, 128), (192, 128, 64), (96, 128, 32), (80, 128, 0), (256, 32, 32), (192, 64, 64)],
)
def test_groups_that_do_not_fit_are_halved(columns: int, group: int, expected: int) -> None:
    assert block_of(columns, group) == expected


def test_the_option_takes_what_the_importer_knows() -> None:
    assert options.GROUPS == GROUPS


@settings(max_examples=80, deadline=None)
@given(_VALUES)
def test_four_bits_are_no_worse_than_the_usual_scale(values: np.ndarray) -> None:
    made = quantise(values, 4)
    assert made.weight.dtype == np.uint8 and made.weight.shape == (len(values), values.shape[1] // 2)
    assert np.isfinite(made.scales.astype(np.float64)).all()
    error = ((groups(dequantise(made)) - groups(values)) ** 2).sum(axis=-1)
    assert (error <= usual_error(values) * (1 + 1e-3) + 1e-12).all()


def usual_error(values: np.ndarray) -> np.ndarray:
    """Squared error under the scale that makes the largest element -8."""
    data = groups(values)
    place = np.abs(data).argmax(axis=-1)[..., None]
    whole = np.take_along_axis(data, place, axis=-1) / -8
    size = np.clip(np.abs(whole), 2.0**-24, 65504).astype(np.float16).astype(np.float64)
    scales = np.where(whole == 0, 1.0, np.copysign(size, whole))
    made = np.clip(np.rint(data / scales), -8, 7) * scales
    return ((made - data) ** 2).sum(axis=-1)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([4, 8]), st.integers(0, 2**32 - 1))
def test_values_that_have_a_number_come_back(bits: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    low, high = (-8, 8) if bits == 4 else (-127, 128)
    numbers = generator.integers(low, high, (3, 64))
    numbers[:, ::GROUP] = low
    scales = generator.uniform(0.01, 4.0, (3, 2)).astype(np.float16).astype(np.float32)
    values = numbers.astype(np.float32) * np.repeat(scales, GROUP, axis=1)
    assert np.array_equal(dequantise(quantise(values, bits)), values)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([4, 8]), st.integers(0, 2**32 - 1))
def test_the_layout_is_that_of_the_operations(bits: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    made = quantise(generator.standard_normal((5, 96)).astype(np.float32), bits)
    assert made.form == Form(bits)
    other = dequantised(made.arrays, {"bits": bits, "group": 32})
    assert np.array_equal(dequantise(made), other)


FORMS = st.builds(
    Form,
    bits=st.sampled_from([4, 8]),
    group=st.sampled_from([16, 32]),
    block=st.sampled_from([32, 64, 96]),
    asymmetry=st.sampled_from(["", "zero", "minimum"]),
    multiplied=st.booleans(),
)


@settings(max_examples=80, deadline=None)
@given(FORMS, st.integers(1, 5), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_every_form_has_the_values_and_bytes_that_it_says(
    form: Form, rows: int, blocks: int, seed: int
) -> None:
    draw, columns = np.random.default_rng(seed), blocks * form.block
    groups = (rows, columns // form.group)
    small = draw.integers(-128, 128, (rows, columns), dtype=np.int8)
    arrays = [small if form.bits == 8 else small[:, ::2].view(np.uint8)]
    arrays.append(draw.normal(size=(rows, blocks)).astype(np.float16))
    if form.multiplied:
        arrays.append(draw.integers(-128, 128, groups, dtype=np.int8))
    if form.asymmetry == "zero":
        arrays.append(draw.integers(-128, 128, (rows, blocks), dtype=np.int8))
    elif form.asymmetry:
        arrays.append(draw.normal(size=(rows, blocks)).astype(np.float16))
        arrays += [draw.integers(0, 64, groups, dtype=np.int8)] if form.multiplied else []
    made = Quantised.of(form, arrays)
    assert len(made.arrays) == len(arrays)
    assert all(one is other for one, other in zip(made.arrays, arrays, strict=True))
    assert form.bytes_of(rows, columns) == sum(one.nbytes for one in arrays)
    options = {"bits": form.bits, "asymmetry": form.asymmetry, "multiplied": form.multiplied}
    np.testing.assert_array_equal(dequantise(made), dequantised(arrays, options))


def test_the_even_element_is_the_low_nibble() -> None:
    packed = Quantised(Form(4), np.full((1, 16), 0x9F, np.uint8), np.ones((1, 1), np.float16))
    assert dequantise(packed)[0, :2].tolist() == [7.0, 1.0]


@pytest.mark.parametrize("bits", [4, 8])
def test_zeros_have_scale_zero_and_tiny_values_have_not(bits: int) -> None:
    values = np.zeros((2, 32), np.float32)
    values[1, 5] = 1e-9
    made = quantise(values, bits)
    assert made.scales[0, 0] == 0 and made.scales[1, 0] != 0
    assert np.abs(dequantise(made)).max() <= 1e-6


@pytest.mark.parametrize("bits", [4, 8])
def test_values_beyond_half_precision_are_refused(bits: int) -> None:
    values = np.full((1, 32), 5e5 if bits == 4 else 8e6, np.float32)
    assert np.allclose(dequantise(quantise(values, bits)), values, rtol=0.1)
    with pytest.raises(ValueError, match="beyond"):
        quantise(values * 2, bits)


def test_a_matrix_of_several_blocks_is_that_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).standard_normal((7, 64)).astype(np.float32)
    whole = quantise(values, 4)
    monkeypatch.setattr("host.importers.decoders.quantise._BLOCK", 128)
    parts = quantise(values, 4)
    assert np.array_equal(whole.weight, parts.weight) and np.array_equal(whole.scales, parts.scales)


@settings(max_examples=60, deadline=None)
@given(_VALUES, st.sampled_from([0.0, 0.7]))
def test_zero_points_are_never_worse_than_none(values: np.ndarray, moved: float) -> None:
    values = values + np.float32(moved) * np.abs(values)
    symmetric, made = quantise(values, 4), quantise(values, 4, asymmetry=ZERO)
    assert made.form == Form(4, asymmetry=ZERO) and made.zeros is not None
    assert made.zeros.dtype == np.int8 and made.zeros.min() >= 0 and made.zeros.max() <= 15
    error, others = (
        ((groups(dequantise(one)) - groups(values)) ** 2).sum(axis=-1) for one in (made, symmetric)
    )
    assert (error <= others * (1 + 1e-3) + 1e-12).all()


def test_zero_points_halve_the_error_of_what_lies_on_one_side() -> None:
    values = np.random.default_rng(0).uniform(0.0, 1.0, (64, 128)).astype(np.float32)
    errors = [((dequantise(quantise(values, 4, 64, one)) - values) ** 2).mean() for one in ("", ZERO)]
    assert errors[1] < 0.4 * errors[0]


@pytest.mark.parametrize("asymmetry", ["", ZERO])
def test_errors_weigh_as_much_as_their_inputs(asymmetry: str) -> None:
    generator = np.random.default_rng(2)
    values = generator.standard_normal((48, 256)).astype(np.float32)
    importance = np.ones(256, np.float32)
    importance[generator.permutation(256)[:12]] = 400.0
    same = quantise(values, 4, 32, asymmetry)
    by_inputs = quantise(values, 4, 32, asymmetry, importance)
    assert same.form == by_inputs.form
    errors = [((dequantise(one) - values) ** 2).mean(axis=0) for one in (same, by_inputs)]
    plain, weighted = (float((one * importance).sum()) for one in errors)
    assert weighted < 0.8 * plain and errors[1].sum() > errors[0].sum()
    # Factors say nothing by their size, and inputs that are never there weigh the same.
    again = quantise(values, 4, 32, asymmetry, importance * np.float32(1e-6))
    for one, other in zip(by_inputs.arrays, again.arrays, strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.isfinite(dequantise(quantise(values, 4, 32, asymmetry, np.zeros(256, np.float32)))).all()
