"""What is measured first, and what next."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from host.model import Candidate, DeviceProfile, Energy, Measurement
from host.schedules import DesignSpace, space_for
from host.schedules.proposer import EstimatingProposer
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.card import Card, Size
from host.tlm.model.gpt2 import LanguageModel
from host.tlm.model.network import load_model, new_model, save_model
from host.tlm.proposer import Tlm
from host.tlm.ranking import Ranking, ScoredProgram, ranked
from tests.unit.schedules import functions as fn
from tests.unit.tlm.cases import board_of

VOCABULARY = Vocabulary()
SIZE = Size(layers=1, heads=2, width=32)


def _order(programs: list[ScoredProgram], ranking: Ranking) -> list[tuple[int, ...]]:
    return [one.values for one in ranked(programs, ranking, len(programs))]


def test_without_estimates_the_likeliest_come_first() -> None:
    programs = [ScoredProgram((1,), -2.0), ScoredProgram((2,), -1.0), ScoredProgram((3,), -3.0)]
    assert _order(programs, Ranking(variety=9.0)) == [(2,), (1,), (3,)]
    assert [one.values for one in ranked(programs, Ranking(), 1)] == [(2,)]


def test_likelihood_counts_beside_the_estimate() -> None:
    fast, likely = ScoredProgram((1, 1), -10.0, 1e-3), ScoredProgram((2, 2), -1.0, 2e-3)
    assert _order([likely, fast], Ranking(likelihood=0.0)) == [(1, 1), (2, 2)]
    # Nine natural units of likelihood are worth a factor of two at log 2 / 9.
    even = math.log(2.0) / 9.0
    assert _order([likely, fast], Ranking(likelihood=0.9 * even)) == [(1, 1), (2, 2)]
    assert _order([fast, likely], Ranking(likelihood=1.1 * even)) == [(2, 2), (1, 1)]


def test_later_programs_differ_from_earlier_ones() -> None:
    best, twin = ScoredProgram((1, 1, 1, 1), -1.0, 1.00e-3), ScoredProgram((1, 1, 1, 2), -1.0, 1.01e-3)
    other = ScoredProgram((5, 6, 7, 8), -1.0, 1.05e-3)
    programs = [best, twin, other]
    assert _order(programs, Ranking(variety=0.0)) == [best.values, twin.values, other.values]
    assert _order(programs, Ranking(variety=0.2)) == [best.values, other.values, twin.values]
    # What is much slower does not come early for being different.
    slow = ScoredProgram(other.values, -1.0, 2e-3)
    assert _order([best, twin, slow], Ranking(variety=0.2))[1] == twin.values


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    save_model(new_model(VOCABULARY, SIZE, seed=3), folder, VOCABULARY, SIZE, "", {})
    return folder


def _task() -> tuple[DesignSpace, DeviceProfile]:
    board = board_of("raspberry_pi_4")
    space = space_for(fn.task(fn.dense(16, 64, 32, 4)), board.hardware, 1)
    return space, DeviceProfile("test", board, board.hardware, 1)


def _values(candidate: Candidate) -> dict[str, int]:
    return {name: int(value) for name, value in candidate.decisions if not isinstance(value, tuple)}


def test_proposals_are_ranked_by_the_estimate_that_is_given(checkpoint: Path) -> None:
    space, profile = _task()
    plain = Tlm(checkpoint).propose(space, profile, [], 32, seed=0)
    assert all(math.isnan(one.estimate_s) for one in plain)
    only = Ranking(likelihood=0.0, variety=0.0)
    judged = Tlm(checkpoint, estimate=DesignSpace.estimate_s, ranking=only).propose(
        space, profile, [], 32, seed=0
    )
    estimates = [one.estimate_s for one in judged]
    assert estimates == sorted(estimates)
    assert estimates == [space.estimate_s(_values(one)) for one in judged]
    others = [space.estimate_s(_values(one)) for one in plain]
    assert estimates[0] < statistics.median(others)
    assert [one.decisions for one in judged] != [one.decisions for one in plain]
    varied = Tlm(checkpoint, estimate=DesignSpace.estimate_s).propose(space, profile, [], 32, seed=0)
    assert varied[0].estimate_s < 1.2 * estimates[0]
    assert Tlm(checkpoint, estimate=DesignSpace.estimate_s).propose(space, profile, [], 32, seed=0) == varied


def test_later_programs_are_near_the_best_by_the_estimate(checkpoint: Path) -> None:
    space, profile = _task()
    estimated: list[dict[str, int]] = []
    near, plain = 0, 0
    for seed in range(12):
        goal = space.sample(random.Random(seed))

        def distance(values: Mapping[str, int], goal: Mapping[str, int] = goal) -> int:
            return sum(values[name] != goal[name] for name in goal)

        def seconds(_: DesignSpace, values: Mapping[str, int], far: Callable[..., int] = distance) -> float:
            estimated.append(dict(values))
            return float(2.0 ** far(values))

        drawn = Tlm(checkpoint).propose(space, profile, [], 32, seed)
        plain += min(distance(_values(one)) for one in drawn)
        estimated.clear()
        [best] = Tlm(checkpoint, estimate=seconds).propose(space, profile, [], 1, seed)
        near += distance(_values(best))
        # No more programs than without an estimate, each once; some that are drawn near the best are known.
        assert 24 < len({tuple(one.values()) for one in estimated}) == len(estimated) <= 32
    assert near < plain


def test_another_estimate_has_the_same_weights(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space, profile = _task()
    loaded: list[Path] = []

    def counted(folder: Path, vocabulary: Vocabulary) -> tuple[LanguageModel, Card]:
        loaded.append(folder)
        return load_model(folder, vocabulary)

    monkeypatch.setattr("host.tlm.model.network.load_model", counted)
    by_time = Tlm(checkpoint, estimate=DesignSpace.estimate_s)
    assert isinstance(by_time, EstimatingProposer)

    def slowest(space: DesignSpace, values: Mapping[str, int]) -> float:
        return 1.0 / space.estimate_s(values)

    made = by_time.by(slowest).propose(space, profile, [], 8, 0), by_time.propose(space, profile, [], 8, 0)
    likeliest = by_time.by(None).propose(space, profile, [], 8, 0)
    assert len(loaded) == 1, "all of them read the checkpoint once"
    own = [Tlm(checkpoint, estimate=one) for one in (slowest, DesignSpace.estimate_s, None)]
    assert [*made, likeliest] == [one.propose(space, profile, [], 8, 0) for one in own]


def test_the_best_that_was_not_measured_is_next(checkpoint: Path) -> None:
    space, profile = _task()
    only = Ranking(likelihood=0.0, variety=0.0)
    proposer = Tlm(checkpoint, estimate=DesignSpace.estimate_s, ranking=only)
    first, second = proposer.propose(space, profile, [], 2, seed=0)
    measurement = Measurement((1.0,), Energy("unavailable", None, None, "no sensor"), {}, {}, 1)
    [found] = proposer.propose(space, profile, [(first, measurement)], 1, seed=0)
    # Programs with the same estimate may take each other's place.
    assert found.decisions != first.decisions and found.estimate_s == second.estimate_s
