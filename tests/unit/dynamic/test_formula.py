from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some
from tvm import tirx
from tvm.sym import Analyzer

from host.dynamic.formula import Formula, fit

LENGTHS = (37, 59, 97, 151)
NUMBERS = some.integers(-200, 200)


def known(formula: Formula) -> dict[int, int]:
    return {length: formula.at(length) for length in LENGTHS}


@given(linear=NUMBERS, constant=NUMBERS)
def test_a_line_is_found_and_holds_at_every_length(linear: int, constant: int) -> None:
    formula = Formula(linear=linear, constant=constant)
    found = fit(known(formula))
    assert found is not None
    assert [found.at(n) for n in range(1, 600)] == [formula.at(n) for n in range(1, 600)]


@given(square=some.integers(-9, 9), linear=NUMBERS, constant=NUMBERS)
def test_a_parabola_is_found_and_holds_at_every_length(square: int, linear: int, constant: int) -> None:
    formula = Formula(square=square, linear=linear, constant=constant)
    found = fit(known(formula))
    assert found is not None
    assert [found.at(n) for n in range(1, 600)] == [formula.at(n) for n in range(1, 600)]


@given(units=some.integers(1, 99), constant=NUMBERS, unit=some.sampled_from((2, 4, 8, 16, 32)))
def test_numbers_of_whole_vectors_are_found(units: int, constant: int, unit: int) -> None:
    formula = Formula(units=units, constant=constant, unit=unit)
    found = fit(known(formula))
    assert found is not None
    assert [found.at(n) for n in LENGTHS] == [formula.at(n) for n in LENGTHS]


def test_rows_of_whole_vectors_are_found() -> None:
    formula = Formula(unit_rows=3, constant=5, unit=16)
    assert fit(known(formula)) == formula


def test_squares_of_whole_tiles_are_found() -> None:
    formula = Formula(unit_squares=2, constant=1, unit=8)
    assert fit(known(formula)) == formula


@given(some.lists(some.integers(0, 10**6), min_size=4, max_size=4))
def test_what_is_fitted_gives_every_known_number(numbers: list[int]) -> None:
    values = dict(zip(LENGTHS, numbers, strict=True))
    found = fit(values)
    assert found is None or {n: found.at(n) for n in LENGTHS} == values


@pytest.mark.parametrize("numbers", [(1, 2, 4, 8), (37, 59, 97, 153), (1, 0, 0, 1)])
def test_numbers_without_a_formula_are_refused(numbers: tuple[int, ...]) -> None:
    assert fit(dict(zip(LENGTHS, numbers, strict=True))) is None


@pytest.mark.parametrize(
    "formula",
    [
        Formula(linear=3, constant=-2),
        Formula(square=2, linear=1, constant=7),
        Formula(units=16, constant=1, unit=16),
        Formula(unit_rows=4, unit=8),
        Formula(unit_squares=3, constant=2, unit=8),
    ],
)
def test_the_expression_has_the_same_value(formula: Formula) -> None:
    length = tirx.Var("n", "int32")
    for n in (1, 15, 16, 17, 511):
        analyzer = Analyzer()
        analyzer.bind(length, tirx.IntImm("int32", n))
        assert int(analyzer.simplify(formula.expression(length))) == formula.at(n)
