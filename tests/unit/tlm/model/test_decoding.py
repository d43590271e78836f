"""Whatever the weights, what is generated is legal; and everything legal can be generated."""

from __future__ import annotations

import itertools
import math
import os
import random

import pytest
import torch

from host.errors import ScheduleError
from host.model import DeviceProfile, Energy, Measurement
from host.schedules import DesignSpace, scheduled_function, space_for
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.card import Size
from host.tlm.model.completions import Completions
from host.tlm.model.decoding import Decoder, generate
from host.tlm.model.gpt2 import LanguageModel
from host.tlm.model.network import new_model, save_model
from host.tlm.proposer import Tlm
from tests.unit.schedules import functions as fn
from tests.unit.tlm.cases import TARGETS, board_of, spaces

VOCABULARY = Vocabulary()
SIZE = Size(layers=1, heads=2, width=32)
# Tasks of each target; EDGETLM_TASKS=100 tries more.
TASKS = int(os.environ.get("EDGETLM_TASKS", "4"))
DRAWS = 300


def _values(space: DesignSpace, values: tuple[int, ...]) -> dict[str, int]:
    return dict(zip([decision.name for decision in space.decisions], values, strict=True))


@pytest.mark.parametrize("target", TARGETS)
def test_programs_are_legal_and_apply_whatever_the_weights(target: str) -> None:
    for number, space in enumerate(itertools.islice(spaces(target, 11), TASKS)):
        model = new_model(VOCABULARY, SIZE, seed=number).eval()
        with torch.no_grad():
            # A new network finds every token nearly as likely; this one is sure of nonsense.
            model.transformer.wte.weight.mul_(40.0)
        written = generate(model, VOCABULARY, space, 16, seed=number)
        assert len({one.values for one in written}) == len(written) <= 16
        assert len(written) == 16 or len(written) == _programs(space)
        for one in written:
            assert space.legal(_values(space, one.values))
            assert one.log_probability <= 0.0
        for values in sorted({one.values for one in written})[:3]:
            space.apply(space.candidate(_values(space, values), "tlm"))


def _programs(space: DesignSpace) -> int:
    """Legal programs of a space of which all values can be listed."""
    every = itertools.product(*(decision.choices for decision in space.decisions))
    return sum(space.legal(_values(space, values)) for values in every)


def _small_spaces() -> dict[str, DesignSpace]:
    cpu, gpu = board_of("x86_64-v4").hardware, board_of("jetson_orin_nano", gpu=True).hardware
    return {
        "dense": space_for(fn.task(fn.dense(6, 48, 8)), cpu, 2),
        "convolution": space_for(fn.task(fn.convolution(4, 4, 32, 3, 1)), cpu, 1),
        "depthwise": space_for(fn.task(fn.depthwise(6, 32, 1)), cpu, 1),
        "softmax": space_for(fn.task(fn.softmax(2, 5, 64)), cpu, 1),
        "transpose": space_for(fn.task(fn.transpose((1, 6, 4, 16), (0, 2, 3, 1))), cpu, 1),
        "cuda dense": space_for(fn.task(fn.dense(4, 16, 4, 8)), gpu),
        "cuda softmax": space_for(fn.task(fn.softmax(4, 16, 4096)), gpu),
    }


@pytest.mark.parametrize("name", _small_spaces())
def test_exactly_the_legal_programs_can_be_written(name: str) -> None:
    space = _small_spaces()[name]
    completions = Completions(space)
    written: list[tuple[int, ...]] = [()]
    for _ in space.decisions:
        written = [(*decided, value) for decided in written for value in completions.allowed(decided)]
    every = itertools.product(*(decision.choices for decision in space.decisions))
    legal = [values for values in every if space.legal(_values(space, values))]
    assert written == legal
    assert len(legal) > 1


def test_weights_are_fetched_ahead_only_where_there_is_a_next_panel() -> None:
    space = space_for(fn.task(fn.dense(64, 2048, 2048, 16)), board_of("x86_64-v4").hardware, 1)
    names = [decision.name for decision in space.decisions]
    assert space.decisions[names.index("fetch")].choices == (0, 1)
    completions = Completions(space)
    found = set()
    for panel in space.decisions[names.index("panel")].choices:
        decided = tuple(panel if name == "panel" else 1 for name in names)
        decided = (*decided[: names.index("window")], 0, 0)
        assert names[: names.index("fetch")] == names[: len(decided)]
        if space.legal(dict(zip(names, (*decided, 0), strict=True))):
            found.add((panel == 2048 // 16, completions.allowed(decided)))
    assert found == {(False, (0, 1)), (True, (0,))}


@pytest.mark.parametrize("target", TARGETS)
def test_drawn_programs_can_be_written(target: str) -> None:
    generator = random.Random(5)
    for space in itertools.islice(spaces(target, 13), 3 * TASKS):
        completions = Completions(space)
        for _ in range(10):
            values = tuple(space.sample(generator, attempts=20000).values())
            for length, value in enumerate(values):
                assert value in completions.allowed(values[:length])


def test_probabilities_are_those_of_the_masked_model() -> None:
    space = space_for(fn.task(fn.softmax(5, 16)), board_of("x86_64-v4").hardware, 2)
    model = new_model(VOCABULARY, SIZE, seed=0).eval()
    found = {one.values: one.log_probability for one in generate(model, VOCABULARY, space, 200, seed=0)}
    assert math.fsum(math.exp(value) for value in found.values()) == pytest.approx(1.0, abs=1e-4)
    assert len(found) == _programs(space) < 200
    likeliest = generate(model, VOCABULARY, space, 1, seed=9)[0]
    assert likeliest.values in found


def _sure_model(number: int) -> LanguageModel:
    """A new network finds every token nearly as likely; this one prefers some."""
    model = new_model(VOCABULARY, SIZE, seed=number).eval()
    with torch.no_grad():
        model.transformer.wte.weight.mul_(20.0)
    return model


def test_programs_are_drawn_without_replacement_by_their_probability() -> None:
    space = space_for(fn.task(fn.softmax(5, 16)), board_of("x86_64-v4").hardware, 2)
    decoder = Decoder(_sure_model(0), VOCABULARY, space)
    likeliest, *others = decoder.draw(200, seed=0)
    draws = [[one.values for one in decoder.draw(3, seed)] for seed in range(DRAWS)]
    assert all(first == likeliest.values for first, _, _ in draws)
    assert all(len(set(drawn)) == 3 for drawn in draws)
    # The likeliest tokens are always taken; of the others, two are drawn without replacement.
    left = {one.values: math.exp(one.log_probability) for one in others}
    whole = math.fsum(left.values())
    expected = dict.fromkeys(left, 0.0)
    for first, second in itertools.permutations(left, 2):
        both = left[first] / whole * left[second] / (whole - left[first])
        expected[first] += both
        expected[second] += both
    assert max(expected.values()) > 0.3
    for values, share in expected.items():
        seen = sum(values in drawn[1:] for drawn in draws) / DRAWS
        assert abs(seen - share) < 4.0 * math.sqrt(share * (1.0 - share) / DRAWS) + 2.0 / DRAWS


def test_bolder_draws_are_less_likely() -> None:
    space = space_for(fn.task(fn.dense(6, 48, 8)), board_of("x86_64-v4").hardware, 2)
    decoder = Decoder(_sure_model(1), VOCABULARY, space)
    plain, bold = (
        math.fsum(one.log_probability for seed in range(8) for one in decoder.draw(9, seed, temperature))
        for temperature in (1.0, 4.0)
    )
    assert bold < plain


@pytest.mark.parametrize("name", _small_spaces())
def test_what_is_drawn_near_a_program_differs_in_one_decision(name: str) -> None:
    space = _small_spaces()[name]
    decoder = Decoder(_sure_model(2), VOCABULARY, space)
    every = {one.values: one.log_probability for one in decoder.draw(5000, seed=0)}
    near = list(every)[len(every) // 2]
    drawn = {one.values: one.log_probability for one in decoder.draw(5000, seed=1, near=near)}
    assert near in drawn
    for values, log_probability in drawn.items():
        changed = [place for place, value in enumerate(values) if value != near[place]]
        # Behind the first decision that differs, another one differs only where it has to.
        for place in changed[1:]:
            assert near[place] not in decoder.allowed(values[:place])
        assert log_probability == pytest.approx(every[values], abs=1e-3)
    single = [values for values in every if sum(a != b for a, b in zip(values, near, strict=True)) == 1]
    assert set(single) <= set(drawn)


def test_decoding_takes_one_core_and_leaves_the_threads_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    space = _small_spaces()["softmax"]
    model = new_model(VOCABULARY, SIZE, seed=0).eval()
    seen = []
    real = model.forward
    monkeypatch.setattr(
        model,
        "forward",
        lambda *given, **named: (seen.append(torch.get_num_threads()), real(*given, **named))[1],
    )
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        generate(model, VOCABULARY, space, 2, seed=0)
        assert set(seen) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_task_without_decisions_is_told() -> None:
    space = space_for(fn.task(fn.addition(1, 7, 13, 4)), board_of("x86_64-v4").hardware)
    empty = DesignSpace(space.task, space.workload, space.hardware, 1, space.rule, ())
    with pytest.raises(ScheduleError, match="no decisions"):
        Completions(empty)


@pytest.fixture(scope="module")
def proposer(tmp_path_factory: pytest.TempPathFactory) -> Tlm:
    folder = tmp_path_factory.mktemp("model")
    save_model(new_model(VOCABULARY, SIZE, seed=3), folder, VOCABULARY, SIZE, "", {})
    return Tlm(folder)


def test_proposals_differ_and_are_repeatable(proposer: Tlm) -> None:
    board = board_of("raspberry_pi_4")
    space = space_for(fn.task(fn.dense(16, 64, 32, 4)), board.hardware, 1)
    profile = DeviceProfile("test", board, board.hardware, 1)
    candidates = proposer.propose(space, profile, [], 20, seed=0)
    assert len(candidates) == len({candidate.decisions for candidate in candidates}) == 20
    assert proposer.propose(space, profile, [], 20, seed=0) == candidates
    assert proposer.propose(space, profile, [], 20, seed=1) != candidates
    assert {candidate.proposer for candidate in candidates} == {proposer.name} == {"tlm"}
    assert scheduled_function(space.apply(candidates[0]))


def test_measured_programs_are_not_proposed_again(proposer: Tlm) -> None:
    board = board_of("x86_64-v4")
    space = space_for(fn.task(fn.transpose((1, 6, 4, 16), (0, 2, 3, 1))), board.hardware, 1)
    profile = DeviceProfile("test", board, board.hardware, 1)
    first = proposer.propose(space, profile, [], 3, seed=0)
    measurement = Measurement((1.0,), Energy("unavailable", None, None, "no sensor"), {}, {}, 1)
    second = proposer.propose(space, profile, [(one, measurement) for one in first], 12, seed=0)
    assert second
    assert not {one.decisions for one in first} & {one.decisions for one in second}
    every = 1
    for decision in space.decisions:
        every *= len(decision.choices)
    assert len(second) <= every - len(first)
