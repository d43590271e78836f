"""The list of tokens only grows, and weights of a shorter list stay usable."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from host.errors import TlmError
from host.schedules import DesignSpace, space_for
from host.schedules.api import PARALLEL
from host.schedules.families import installed_rules, rule_versions
from host.tlm.language import numbers, vocabulary
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model import rule_versions as module_of_versions
from host.tlm.model.card import CARD, read_card
from host.tlm.model.checkpoints import SHIPPED, shipped
from host.tlm.model.decoding import generate
from host.tlm.model.network import load_model
from host.tlm.training.finetune import CANDIDATE, FinetuneOptions, finetune
from host.tlm.training.packing import Sample
from host.tlm.training.replay import REPLAY, read_replay
from host.tlm.training.trainer import log_probabilities
from sdk.cli.main import main
from tests.unit.schedules import functions as fn
from tests.unit.tlm.cases import board_of
from tests.unit.tlm.learning import example_of

APPENDED = (("rule:unheard", "rule"), ("warp=", "decision:tile"), ("swizzle=", "swizzle"))
KNOWN = Vocabulary()
# Tokens of the list that the shipped weights were trained with.
TRAINED = read_card(shipped()).tokens


@pytest.fixture
def longer(monkeypatch: pytest.MonkeyPatch) -> Vocabulary:
    """The vocabulary with three tokens more."""
    monkeypatch.setattr(vocabulary, "_ENTRIES", (*vocabulary._ENTRIES, *APPENDED))
    return Vocabulary()


def _check_listed(tokens: Iterable[str], kind: str = "CLASS") -> None:
    missing = [token for token in dict.fromkeys(tokens) if token not in KNOWN.tokens]
    lines = "\n".join(f"{token} {kind}" for token in missing)
    assert not missing, f"append to host/tlm/language/{vocabulary.FILE}, each with its class:\n{lines}"


def test_everything_that_can_be_said_of_a_board_and_a_task_has_a_token() -> None:
    flags = (False, True)
    _check_listed((vocabulary.PAD, vocabulary.BOARD, vocabulary.TASK, vocabulary.DECIDE, vocabulary.END))
    _check_listed((vocabulary.CPU, vocabulary.GPU, *numbers.TOKENS))
    _check_listed(map(vocabulary.level_token, range(vocabulary.LEVELS)))
    _check_listed(map(vocabulary.quality_token, range(vocabulary.QUALITIES)))
    _check_listed(map(vocabulary.width_token, vocabulary.WIDTHS))
    stages = itertools.product(vocabulary.STAGE_KINDS, flags, flags)
    _check_listed(vocabulary.stage_token(*parts) for parts in stages)
    moves = itertools.product(vocabulary.MOVES, repeat=3)
    _check_listed(vocabulary.axis_token(*parts) for parts in itertools.product(flags, map("".join, moves)))


def test_every_rule_has_a_token() -> None:
    _check_listed((vocabulary.rule_token(rule.name) for rule in installed_rules()), "rule")


def test_every_decision_has_a_token_of_the_class_that_its_rule_declares() -> None:
    for kind in (PARALLEL, *(kind for rule in installed_rules() for kind in rule.decisions)):
        token, declared = vocabulary.decision_token(kind.name), f"decision:{kind.words}"
        _check_listed([token], declared)
        assert KNOWN.classes[KNOWN.number(token)] == declared


def test_tokens_are_listed_once_and_with_a_class() -> None:
    assert len(set(KNOWN.tokens)) == len(KNOWN) == len(KNOWN.classes)
    assert all(KNOWN.classes)


def test_the_shipped_weights_are_of_the_first_tokens_of_the_list() -> None:
    card = read_card(shipped())
    KNOWN.check_prefix(card.tokens, card.vocabulary, "the shipped weights")
    assert len(read_replay(SHIPPED / REPLAY, KNOWN)) > 100


def _known_spaces() -> list[DesignSpace]:
    cpu, gpu = board_of("x86_64-v3").hardware, board_of("jetson_orin_nano", gpu=True).hardware
    return [
        space_for(fn.task(fn.dense(8, 96, 64)), cpu, 2),
        space_for(fn.task(fn.convolution(14, 16, 32, 3, 1)), cpu, 1),
        space_for(fn.task(fn.dense(16, 64, 32, 8)), gpu),
    ]


def test_appended_tokens_change_nothing_of_what_the_shipped_weights_know(longer: Vocabulary) -> None:
    before, _ = load_model(shipped(), KNOWN)
    after, card = load_model(shipped(), longer)
    assert card.untrained == (*KNOWN.tokens[TRAINED:], *(token for token, _ in APPENDED))
    tokens = torch.arange(200).reshape(2, -1)
    with torch.inference_mode():
        old, new = before(tokens), after(tokens)
    assert new.shape[-1] == len(KNOWN) + 3
    torch.testing.assert_close(new[..., : len(KNOWN)], old)
    for space in _known_spaces():
        written = generate(before, KNOWN, space, 16, seed=3)
        again = generate(after, longer, space, 16, seed=3)
        assert [one.values for one in again] == [one.values for one in written]
        expected = [one.log_probability for one in written]
        assert [one.log_probability for one in again] == pytest.approx(expected, abs=1e-3)


def test_an_appended_token_starts_as_the_mean_of_its_class(longer: Vocabulary) -> None:
    rows = load_model(shipped(), longer)[0].transformer.wte.weight.detach()
    for number, (_, kind) in enumerate(APPENDED, start=len(KNOWN)):
        like = [n for n, other in enumerate(KNOWN.classes[:TRAINED]) if kind in (other, "swizzle")]
        torch.testing.assert_close(rows[number], rows[like].mean(dim=0))


def test_fine_tuning_learns_an_appended_token(base: Path, tmp_path: Path, longer: Vocabulary) -> None:
    examples = [example_of(9, number, 1, first="warp", vocabulary=longer) for number in range(30)]
    options = FinetuneOptions(base, tmp_path / "tuned", steps=40, learning_rate=5e-3)
    result = finetune(options, examples, lambda progress: None)
    assert result.accepted
    assert read_card(result.checkpoint).untrained == ("rule:unheard", "swizzle=")
    unseen = example_of(9, 77, 5, first="warp", vocabulary=longer)
    quality = longer.number(vocabulary.quality_token(0))
    sample = Sample((*unseen.prompt, quality), unseen.programs[0][0])
    one, other = (
        log_probabilities(load_model(folder, longer)[0], [sample], longer.number(vocabulary.PAD), 1)[0]
        for folder in (base, result.checkpoint)
    )
    assert other > one + 2.0


def test_a_list_that_changed_elsewhere_than_at_its_end_is_refused(
    base: Path, longer: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = list(vocabulary._ENTRIES)
    entries[5], entries[6] = entries[6], entries[5]
    monkeypatch.setattr(vocabulary, "_ENTRIES", tuple(entries))
    for use in (lambda: load_model(base, Vocabulary()), lambda: read_replay(base / REPLAY, Vocabulary())):
        with pytest.raises(TlmError, match="tokens changed that may only be appended") as caught:
            use()
        assert "\n" not in str(caught.value)


def test_weights_of_a_longer_list_are_refused(
    base: Path, tmp_path: Path, longer: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = [example_of(9, number, 1, first="warp", vocabulary=longer) for number in range(30)]
    options = FinetuneOptions(base, tmp_path / "tuned", steps=2, always=True)
    finetune(options, examples, lambda progress: None)
    monkeypatch.undo()
    with pytest.raises(TlmError, match=f"{len(longer)} tokens, this one has {len(KNOWN)}"):
        load_model(tmp_path / "tuned" / CANDIDATE, KNOWN)


def outdated(card: str) -> list[str]:
    """The rules that a printed card names as outdated."""
    return card.partition("outdated")[2].partition("\n")[0].split()


def test_a_rule_that_changed_leaves_the_model_usable_and_is_named(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # One that has not changed since the shipped weights were trained.
    [winograd] = [rule for rule in installed_rules() if rule.name == "winograd"]
    known = read_replay(SHIPPED / REPLAY, KNOWN)
    assert main(["tlm", "card"]) == 0
    assert "winograd" not in outdated(capsys.readouterr().out)
    monkeypatch.setattr(type(winograd), "version", winograd.version + 1)
    # The card reads the versions off the sources, which a test keeps equal to those of the rules.
    monkeypatch.setattr(module_of_versions, "known_versions", rule_versions)
    load_model(shipped(), KNOWN)
    assert main(["tlm", "card"]) == 0
    assert "winograd" in outdated(capsys.readouterr().out)
    number = KNOWN.number(vocabulary.rule_token("winograd"))
    assert read_replay(SHIPPED / REPLAY, KNOWN) == [one for one in known if number not in one.prompt]
    assert any(number in one.prompt for one in known)
    # What is learned of a rule's new programs is of its new version.
    [tiled] = [rule for rule in installed_rules() if rule.name == "tiled"]
    monkeypatch.setattr(type(tiled), "version", tiled.version + 1)
    examples = [example_of(9, number, 1) for number in range(30)]
    options = FinetuneOptions(base, tmp_path / "tuned", steps=1, replay_share=0.0, always=True)
    finetune(options, examples, lambda progress: None)
    assert read_card(tmp_path / "tuned" / CANDIDATE).rules == {"tiled": tiled.version}


def test_the_command_shows_what_was_never_trained(
    base: Path, longer: Vocabulary, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tlm", "card"]) == 0
    said = capsys.readouterr().out
    assert f"tokens    {TRAINED} of {len(longer)}" in said
    assert " ".join(("untrained", *longer.tokens[TRAINED:])) in said
    assert main(["tlm", "card", "-o", "json"]) == 0
    rows = {row["name"]: row["value"] for row in json.loads(capsys.readouterr().out)}
    assert rows["untrained"] == " ".join(longer.tokens[TRAINED:])
    card = json.loads((base / CARD).read_text())
    assert main(["tlm", "card", str(base)]) == 0
    assert card["weights"][:16] in capsys.readouterr().out
