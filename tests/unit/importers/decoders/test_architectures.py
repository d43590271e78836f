"""Every architecture computes what transformers computes, step by step."""

from __future__ import annotations

from pathlib import Path

import pytest

from host.importers.decoders.architectures import known_architectures
from tests.decoders.operations import Machine, empty_state
from tests.unit.importers.decoders.models import save
from tests.unit.importers.decoders.references import MODELS, Decoder, distance


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    kind, fields = MODELS[name]
    made = Decoder(tmp_path, save(tmp_path, kind, **fields))
    machine = Machine(made.step, empty_state(made.specs))
    for position, token in enumerate(made.tokens):
        logits = machine.run([token], [position])
        assert distance(logits[0], made.logits[position]) < 1e-4, position


def test_every_architecture_is_tested() -> None:
    assert {kind for kind, _ in MODELS.values()} == set(known_architectures())
