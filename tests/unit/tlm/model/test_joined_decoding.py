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
from host.schedules.api import Decisions
from host.tlm.model.decoding import Decoder, GeneratedProgram
from host.tlm.model.joined_decoding import JoinedDecoder
from host.tlm.model.network import new_model, save_model
from host.tlm.proposer import Tlm
from host.tlm.ranking import Ranking
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


def test_half_of_the_parts_are_drawn_uniformly_where_an_estimate_ranks() -> None:
    space = _space()
    mixed = JoinedDecoder(_model(), VOCABULARY, space, mixed=True)
    written = mixed.draw(24, seed=3)
    names = [decision.name for decision in space.decisions]
    assert len({one.values for one in written}) == len(written) == 24
    assert all(space.legal(dict(zip(names, one.values, strict=True))) for one in written)
    models = [Decoder(_model(), VOCABULARY, part).draw(12, 3 + n) for n, part in enumerate(space.parts)]
    chances = [{one.values: one.log_probability for one in own} for own in models]
    by_model = [
        all(own in known for own, known in zip(_parts(space, one.values), chances, strict=False))
        for one in written
    ]
    assert by_model[0] and sum(by_model) == 12
    # A uniform draw counts as likely as the least likely that the model has written.
    least = sum(min(known.values()) for known in chances)
    uniform = [one.log_probability for one, own in zip(written, by_model, strict=True) if not own]
    assert all(one >= least - 1e-6 for one in uniform) and min(uniform) == pytest.approx(least)
    alone = JoinedDecoder(_model(), VOCABULARY, space).draw(24, seed=3)
    assert alone[0] == written[0]


@pytest.mark.parametrize("mixed", [False, True])
def test_parts_that_were_drawn_are_exchanged_by_what_programs_cost(mixed: bool) -> None:
    space = _space(2)
    decoder = JoinedDecoder(_model(), VOCABULARY, space, mixed)
    written = decoder.draw(12, seed=3)
    costs = {}

    def cost(one: GeneratedProgram) -> float:
        costs[one.values] = float(sum(value * (number + 1) for number, value in enumerate(one.values)))
        return costs[one.values]

    begin = written[4]
    found = decoder.exchanged(begin.values, cost)
    assert begin in found and len({one.values for one in found}) == len(found) > 12
    assert [costs[one.values] for one in found] == sorted(costs[one.values] for one in found)
    # These costs add up, so that the first program is made of the best part of each.
    *parts, others = _parts(space, found[0].values)
    assert others == tuple(_parts(space, begin.values))[-1]
    for number in range(len(parts)):
        for one in written:
            *known, _ = _parts(space, one.values)
            changed = [*parts[:number], known[number], *parts[number + 1 :], others]
            flat = tuple(value for some in changed for value in some)
            assert sum(v * (n + 1) for n, v in enumerate(flat)) >= costs[found[0].values]
    for one in found:
        assert one.log_probability <= 0.0


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


def test_a_chain_begins_with_the_best_of_the_drawn_parts_by_the_estimate(tmp_path: Path) -> None:
    save_model(_model(), tmp_path, VOCABULARY, SIZE, "", {})  # type: ignore[arg-type]
    space = _space()
    profile = DeviceProfile("parts", board_of("x86_64-v3"), space.hardware, 1)
    model = Tlm(tmp_path, estimate=DesignSpace.estimate_s)
    first = values_of(model.propose(space, profile, (), 1, 0)[0])
    asked: list[float] = []

    def counted(own: DesignSpace, values: Decisions) -> float:
        asked.append(own.estimate_s(values))
        return asked[-1]

    again = values_of(model.by(counted).propose(space, profile, (), 1, 0)[0])
    assert again == first and space.estimate_s(first) == min(asked)
    # 24 programs, 32 parts of each kind in the place of those of the best, and those that are taken.
    assert len(asked) <= 24 + 3 * 33 + 8
    # The model's parts are likely and slow, so that a weight of likelihood chooses others.
    alone = Tlm(tmp_path, estimate=DesignSpace.estimate_s, ranking=Ranking(likelihood=9.0), mixed=False)
    assert space.estimate_s(values_of(alone.propose(space, profile, (), 1, 0)[0])) > min(asked)
