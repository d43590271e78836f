"""Whether a deployment holds what it has read for longer than it needs it."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

from host.compare.comparison import EngineComparison
from host.deploy import deployment
from host.model import ImportedModel


def held_when_compared(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Receives, when engines are compared, whether anybody has the model that was read, with its weights."""
    read, compare = deployment.read_model, deployment.compare_engines
    models: list[weakref.ref[ImportedModel]] = []
    held: list[bool] = []

    def reading(*given: Any) -> ImportedModel:
        model = read(*given)
        models.append(weakref.ref(model))
        return model

    def comparing(*given: Any) -> EngineComparison:
        held.append(models[0]() is not None)
        return compare(*given)

    monkeypatch.setattr(deployment, "read_model", reading)
    monkeypatch.setattr(deployment, "compare_engines", comparing)
    return held
