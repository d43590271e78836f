"""What decides whether a fine-tuned model is used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from host.tlm.model.network import load_model
from host.tlm.training import gate
from host.tlm.training.example import Example
from tests.unit.tlm.learning import VOCABULARY, example_of, measured, tokens_of


def test_what_is_withheld_stays_withheld_when_more_is_measured() -> None:
    few, many = measured(30), measured(60)
    before, after = ({one.prompt for one in gate.split(examples)[1]} for examples in (few, many))
    assert len(before) >= 3
    assert before <= after
    learned, withheld = gate.split([*many, replace(many[0], index=99)])
    assert not {one.prompt for one in learned} & {one.prompt for one in withheld}


def test_the_error_is_of_the_order_and_not_of_how_likely_all_programs_are(base: Path) -> None:
    model, _ = load_model(base, VOCABULARY)
    example = example_of(9, 1, 1)
    backwards = replace(
        example,
        programs=tuple(
            (tokens, slower)
            for (tokens, _), (_, slower) in zip(reversed(example.programs), example.programs, strict=True)
        ),
    )
    # A model without a preference is about as wrong about an order as about its opposite.
    one, other = gate.task_errors(model, VOCABULARY, [example, backwards])
    assert one + other == pytest.approx(1.0, abs=0.35)
    # A model that finds everything likelier alike is no better.
    assert gate._misordered([-1.0, -2.0, -3.0], [1.0, 2.0, 3.0]) == 0.0
    assert gate._misordered([-3.0, -2.0, -1.0], [1.0, 2.0, 3.0]) == 1.0
    assert gate._misordered([-3.0, -2.0, -1.0], [1.0, 1.01, 1.02]) == 0.0
    assert gate.compare([1.0, 1.0, 1.0], [0.5, 0.6, 0.4]).accepted
    assert not gate.compare([1.0, 1.0, 1.0], [0.2, 1.5, 1.2]).accepted
    assert not gate.compare([1.0], [1.0]).accepted


def test_many_programs_of_a_task_are_thinned_out_from_the_fastest_to_the_slowest(base: Path) -> None:
    programs = tuple((tokens_of(number, 1), 1.0 + number) for number in range(300))
    thinned = gate._thinned(Example(0, example_of(9, 1, 1).prompt, programs))
    assert len(thinned.programs) == 64
    assert (thinned.programs[0], thinned.programs[-1]) == (programs[0], programs[-1])
    slower = [time for _, time in thinned.programs]
    assert slower == sorted(set(slower))
