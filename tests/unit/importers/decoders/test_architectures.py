"""Every architecture computes what transformers computes, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from host.importers.decoders.architectures import describe, known_architectures
from host.importers.decoders.config import Config
from tests.decoders.operations import Machine, empty_state
from tests.unit.importers.decoders.models import SIZES, save
from tests.unit.importers.decoders.references import MODELS, Decoder, distance


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    kind, fields = MODELS[name]
    made = Decoder(tmp_path, save(tmp_path, kind, **fields))
    machine = Machine(made.step, empty_state(made.specs))
    for position, token in enumerate(made.tokens):
        logits = machine.run([token], [position])
        assert distance(logits[0], made.logits[position]) < 1e-4, position


@pytest.mark.parametrize("kind", ["gemma2", "mistral"])
@pytest.mark.parametrize(("given", "expected"), [({}, 4096), ({"sliding_window": None}, 0)])
def test_a_config_without_a_window_has_that_of_transformers(
    kind: str, given: dict[str, Any], expected: int
) -> None:
    import transformers

    config = transformers.AutoConfig.for_model(kind, **given)
    assert (config.sliding_window or 0) == expected
    description, _ = describe(Config("test", {"model_type": kind, **SIZES, **given}), ())
    assert description.layers[0].window == expected


def test_every_architecture_is_tested() -> None:
    assert {kind for kind, _ in MODELS.values()} == set(known_architectures())
