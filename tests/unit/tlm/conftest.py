"""What the tests of the language model share."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from host.tlm.language.vocabulary import quality_token
from host.tlm.model.network import new_model, save_model
from host.tlm.training.packing import Sample
from host.tlm.training.replay import REPLAY, write_replay
from host.tlm.training.trainer import Schedule, Trainer
from tests.unit.tlm.learning import SIZE, VOCABULARY, example_of


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that knows the language and has no preference, with what it learned beside it."""
    folder = tmp_path_factory.mktemp("base")
    known = [example_of(3, number, 0, right=False) for number in range(40)]
    quality = VOCABULARY.number(quality_token(0))
    training = Trainer(new_model(VOCABULARY, SIZE, 0), VOCABULARY, Schedule(120, 1e-2, 5), {})
    generator = random.Random(0)
    while training.step < 120:
        chosen = generator.choices(known, k=8)
        training.train([Sample((*e.prompt, quality), decided) for e in chosen for decided, _ in e.programs])
    assert training.recent_loss < 1.6
    save_model(training.model, folder, VOCABULARY, SIZE, "", {})
    assert write_replay(folder / REPLAY, known, 30, 0, VOCABULARY) == 30
    return folder
