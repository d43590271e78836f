"""Whether a deployment holds what it has read for longer than it needs it."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

from host.compare.comparison import EngineComparison, compare_engines
from host.compile.model_file import read_model
from host.model import ImportedModel


def held_when_compared(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Receives, when engines are compared, whether anybody has the model that was read, with its weights."""
    models: list[weakref.ref[ImportedModel]] = []
    held: list[bool] = []

    def reading(*given: Any) -> ImportedModel:
        model = read_model(*given)
        models.append(weakref.ref(model))
        return model

    def comparing(*given: Any) -> EngineComparison:
        held.append(models[0]() is not None)
        return compare_engines(*given)

    monkeypatch.setattr("host.deploy.deployment.read_model", reading)
    monkeypatch.setattr("host.deploy.deployment.compare_engines", comparing)
    return held
