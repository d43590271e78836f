"""A file is all that an architecture of language models needs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from host.errors import ImportFailed
from host.importers.decoders import architectures
from host.importers.decoders.architectures import describe, known_architectures
from host.importers.decoders.config import Config
from tests.decoders.operations import Machine, empty_state
from tests.recipes import files
from tests.unit.importers.decoders.models import save
from tests.unit.importers.decoders.references import Decoder, distance

ARCHITECTURE = "host/importers/decoders/architectures/seed_oss.py"
FIELDS = {"head_dim": 32, "attention_out_bias": True}


def forget() -> None:
    architectures._modules.cache_clear()
    architectures._readers.cache_clear()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The recipe's file in the folder of architectures, which is listed with this one."""
    added = tmp_path / "architectures"
    added.mkdir()
    (added / Path(ARCHITECTURE).name).write_text(files()[ARCHITECTURE])
    monkeypatch.setattr(architectures, "__path__", [*architectures.__path__, str(added)])
    forget()
    yield added
    sys.modules.pop(f"{architectures.__name__}.seed_oss", None)
    forget()


def test_it_computes_what_transformers_computes(folder: Path, tmp_path: Path) -> None:
    assert "seed_oss" in known_architectures()
    model = save(tmp_path / "model", "seed_oss", **FIELDS)
    made = Decoder(tmp_path / "model", model)
    machine = Machine(made.step, empty_state(made.specs))
    for position, token in enumerate(made.tokens):
        assert distance(machine.run([token], [position])[0], made.logits[position]) < 1e-4


def test_without_it_the_model_is_refused_by_name() -> None:
    with pytest.raises(ImportFailed, match="architecture 'seed_oss' is not known"):
        describe(Config("model", {"model_type": "seed_oss"}), ())
