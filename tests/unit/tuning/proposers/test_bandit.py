from __future__ import annotations

import pytest

from host.gensor import Gensor
from host.tuning.proposers.bandit import BanditProposer
from host.tuning.proposers.trials import Trial
from tests.unit.tuning.simulated import Broken, Skilled, by, dense_space, measured, profile, truth


def test_each_program_once_and_none_that_is_known() -> None:
    space = dense_space()
    first = Gensor().propose(space, profile(), (), 6, 0)
    # The second proposer makes the same programs under its own name.
    bandit = BanditProposer([Gensor(), Echo()], seed=0)
    history = [(first[0], measured(1.0))]
    proposed = bandit.propose(space, profile(), history, 8, 0, taken=first[1:3])
    decisions = [one.decisions for one in proposed]
    assert len(decisions) == len(set(decisions)) == 8
    assert not {one.decisions for one in first[:3]} & set(decisions)
    assert {one.proposer for one in proposed} == {"gensor", "echo"}


class Echo:
    """Gensor's programs under another name."""

    name = "echo"

    def propose(self, *arguments: object) -> list[object]:
        return [by(one, self.name) for one in Gensor().propose(*arguments)]  # type: ignore[arg-type]


def test_the_same_arguments_give_the_same_and_the_seed_another_mixture() -> None:
    space = dense_space()

    def names(seed: int) -> list[str]:
        bandit = BanditProposer([Skilled("a", 1), Skilled("b", 1)], seed=seed)
        return [one.proposer for one in bandit.propose(space, profile(), (), 12, 0)]

    assert names(1) == names(1)
    assert len({tuple(names(seed)) for seed in range(4)}) > 1


def test_unknown_proposers_are_compared_from_the_start() -> None:
    space = dense_space()
    for seed in range(10):
        bandit = BanditProposer([Skilled("a", 1), Skilled("b", 1)], seed=seed)
        assert {one.proposer for one in bandit.propose(space, profile(), (), 2, 0)} == {"a", "b"}


@pytest.mark.parametrize("order", [("strong", "weak"), ("weak", "strong")])
def test_the_share_converges_to_the_winner(order: tuple[str, str]) -> None:
    """On a board of known truth: rounds of proposals and measurements, the state only in the trials."""
    skills = {"strong": 24, "weak": 1}
    spaces = [dense_space(f"t{number}") for number in range(4)]
    trials: list[Trial] = []
    chosen: list[list[str]] = []
    for batch in range(12):
        bandit = BanditProposer([Skilled(name, skills[name]) for name in order], 0, trials)
        measured_now: list[Trial] = []
        for space in spaces:
            history = [
                (t.candidate, measured(t.seconds)) for t in trials if t.task == space.task.workload_hash
            ]
            for one in bandit.propose(space, profile(), history, 4, batch):
                measured_now.append(Trial(one, truth(space, one), str(batch)))
        chosen.append([trial.candidate.proposer for trial in measured_now])
        trials += measured_now
    assert chosen[0].count("strong") in range(4, 13), "nothing is known at first"
    late = [name for batch in chosen[6:] for name in batch]
    assert late.count("strong") > 0.75 * len(late)
    assert BanditProposer([Skilled(name, 1) for name in order], 0, trials).expected_shares()["strong"] > 0.75


def test_a_broken_proposer_is_told_of_and_the_other_fills_its_slots() -> None:
    notes: list[str] = []
    bandit = BanditProposer([Broken(), Gensor()], seed=0, note=notes.append)
    proposed = bandit.propose(dense_space(), profile(), (), 6, 0)
    assert [one.proposer for one in proposed] == ["gensor"] * 6
    assert len(notes) == 1
    assert "tlm proposes nothing" in notes[0] and "weights.safetensors" in notes[0]


def test_a_space_that_is_measured_whole_has_nothing_left() -> None:
    space = dense_space()
    whole = Gensor().propose(space, profile(), (), 10_000, 0)

    class Few(Skilled):
        def propose(self, *arguments: object) -> list[object]:  # type: ignore[override]
            return whole[:5]

    bandit = BanditProposer([Few("few", 1)], seed=0)
    assert bandit.propose(space, profile(), (), 9, 0) == whole[:5]
    assert bandit.propose(space, profile(), [(one, measured(1.0)) for one in whole[:5]], 9, 0) == []


def test_names_must_differ() -> None:
    with pytest.raises(ValueError, match="different names"):
        BanditProposer([Gensor(), Gensor()], seed=0)
