"""The times of a language model's texts: taken on boards alone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from host.deploy import texts
from host.model import BOARD, EMULATOR, SIMULATION, TimingPolicy
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
