"""Programs of chains: the model writes each part as a task of its own, and the parts are put together."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch

from host.learned_estimate.observation import values_of
from host.model import DeviceProfile
from host.schedules import DesignSpace
from host.tlm.model.decoding import Decoder
from host.tlm.model.joined_decoding import JoinedDecoder
from host.tlm.model.network import new_model, save_model
from host.tlm.proposer import Tlm
from tests.unit.schedules.cpu.test_chain import chain_space
from tests.unit.tlm.cases import board_of
from tests.unit.tlm.model.test_decoding import SIZE, VOCABULARY


@cache
def _space(threads: int = 1) -> DesignSpace:
    space, _ = chain_space("three parts", threads)
    return space


@cache
def _model() -> torch.nn.Module:
    model = new_model(VOCABULARY, SIZE, seed=0).eval()
    with torch.no_grad():
        model.transformer.wte.weight.mul_(20.0)
    return model


def _parts(space: DesignSpace, values: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The values of each part, and then of what belongs to none."""
    start = 0
    for part in space.parts:
        yield values[start : start + len(part.decisions)]
        start += len(part.decisions)
    yield values[start:]


@pytest.mark.parametrize("threads", [1, 2])
def test_programs_are_legal_and_begin_with_the_likeliest_parts(threads: int) -> None:
    space = _space(threads)
    names = [decision.name for decision in space.decisions]
    written = JoinedDecoder(_model(), VOCABULARY, space).draw(24, seed=1)
    assert len({one.values for one in written}) == len(written) == 24
    assert all(space.legal(dict(zip(names, one.values, strict=True))) for one in written)
    alone = [Decoder(_model(), VOCABULARY, part).draw(1, seed=0)[0] for part in space.parts]
    *first, others = _parts(space, written[0].values)
    assert first == [one.values for one in alone]
    assert written[0].log_probability == pytest.approx(sum(one.log_probability for one in alone))
    assert others == ((threads,) if threads > 1 else ())


def test_likely_parts_are_drawn_more_often() -> None:
    space = _space()
    chances = [one.log_probability for one in JoinedDecoder(_model(), VOCABULARY, space).draw(24, seed=2)]
    bold = [one.log_probability for one in JoinedDecoder(_model(), VOCABULARY, space).draw(24, 2, 4.0)]
    assert sum(bold) < sum(chances)


def test_what_is_drawn_near_a_program_differs_in_one_part() -> None:
    space = _space(2)
    decoder = JoinedDecoder(_model(), VOCABULARY, space)
    near = decoder.draw(5, seed=3)[4].values
    written = [one.values for one in decoder.draw(12, seed=4, near=near)]
    assert len(set(written)) == len(written) == 12
    changed = set()
    for values in written:
        apart = [
            number
            for number, (own, other) in enumerate(
                zip(_parts(space, values), _parts(space, near), strict=True)
            )
            if own != other
        ]
        assert len(apart) <= 1
        changed.update(apart)
    assert changed == {0, 1, 2}


def test_what_is_drawn_near_a_program_is_as_likely_as_all_its_parts() -> None:
    space = _space(2)
    decoder = JoinedDecoder(_model(), VOCABULARY, space)
    near = decoder.draw(5, seed=3)[4]
    known = []
    for number, (part, own) in enumerate(zip(space.parts, _parts(space, near.values), strict=False)):
        alone = Decoder(_model(), VOCABULARY, part)
        drawn = [*alone.draw(5, seed=3 + number), *alone.draw(12, seed=4 + number, near=own)]
        known.append({one.values: one.log_probability for one in drawn})
    for one in decoder.draw(12, seed=4, near=near.values):
        *parts, _ = _parts(space, one.values)
        likely = [those[values] for those, values in zip(known, parts, strict=True)]
        assert one.log_probability == pytest.approx(sum(likely))


def test_a_chain_is_proposed_by_its_parts(tmp_path: Path) -> None:
    save_model(_model(), tmp_path, VOCABULARY, SIZE, "", {})  # type: ignore[arg-type]
    space = _space()
    board = board_of("x86_64-v3")
    profile = DeviceProfile("parts", board, space.hardware, 1)
    found = Tlm(tmp_path, estimate=DesignSpace.estimate_s).propose(space, profile, (), 8, 0)
    assert len({one.decisions for one in found}) == 8
    assert all(space.legal(values_of(one)) for one in found)
    likeliest = Tlm(tmp_path).propose(space, profile, (), 1, 0)
    first = JoinedDecoder(_model(), VOCABULARY, space).draw(1, seed=0)[0]
    assert tuple(values_of(likeliest[0]).values()) == first.values
