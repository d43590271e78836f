"""The language model is fine-tuned in the middle of a tuning by a host of a cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from host.tuning.learning.finetuning import FinetuneTrainer
from tests.ray_cluster import RayCluster
from tests.unit.tuning.learning.test_finetuning import base, measured, profile, records

__all__ = ["base", "measured"]

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayCluster]:
    made = RayCluster(tmp_path, [(), ()])
    for name, value in made.environment.items():
        if os.environ.get(name) != value:
            monkeypatch.setenv(name, value)
    yield made
    made.close()


def test_a_host_takes_the_steps_of_a_training(
    cluster: RayCluster, measured: Path, base: Path, tmp_path: Path
) -> None:
    models, steps = tmp_path / "models", []
    with FinetuneTrainer(profile(), tmp_path, steps=30, root=models, cluster=cluster.engine) as trainer:
        training = trainer.start(records(measured), last=False, seconds=0.0)
        assert training is not None
        found = training.result(lambda done, total: steps.append((done, total)))
    # Ten steps a call, of which the process here makes none.
    assert steps == [(10, 30), (20, 30), (30, 30)]
    assert trainer.learned_from() == len(records(measured))
    assert found.seconds > 0.0 and (found.proposer is None) == (found.after >= found.before)
