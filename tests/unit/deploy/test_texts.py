"""The times of a language model's texts: taken on boards alone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from host.deploy import texts
from host.model import BOARD, EMULATOR, SIMULATION, TimingPolicy
from host.options import DeployOptions
from host.progress import Silence, StageClock


class _Opened(Exception):
    """A session was asked for."""


def _device(timing: TimingPolicy) -> Any:
    def open_session(engine: str, threads: int) -> None:
        raise _Opened

    return SimpleNamespace(timing=timing, open_session=open_session)


def test_texts_are_not_timed_where_the_seconds_would_be_this_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = cast(Any, SimpleNamespace(read_manifest=lambda directory: SimpleNamespace(decoder=object())))
    monkeypatch.setattr(texts, "bundle", kept)
    for timing in (EMULATOR, SIMULATION):
        assert texts.timed_text(Path(), 1, _device(timing), StageClock(Silence()), 0, None) is None
    with pytest.raises(_Opened):
        texts.timed_text(Path(), 1, _device(BOARD), StageClock(Silence()), 0, None)


def test_no_engine_of_texts_is_looked_for_beside_another_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes longer than the rest of the end of a deployment: each engine's search reads all packages."""
    kept = cast(Any, SimpleNamespace(read_manifest=lambda directory: SimpleNamespace(decoder=None)))
    monkeypatch.setattr(texts, "bundle", kept)
    asked: list[str] = []
    monkeypatch.setattr(texts, "unavailable", asked.append)
    clock, options = StageClock(Silence()), DeployOptions()
    assert texts.compared_texts("onnx", options, Path(), 1, _device(BOARD), clock) is None
    assert not asked
