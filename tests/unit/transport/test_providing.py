"""What an engine needs is sent to a board once, also where two threads ask for it."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from host.transport import ssh
from host.transport.ssh import SshAgent

_PATIENCE_S = 20.0


class Installing:
    """An installer of a board, whose first installation ends when it may."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.installed: list[str] = []

    def payload(self, payload: Any, board: Any) -> bool:
        self.installed.append(payload.engine)
        self.begun.set()
        assert self.may_end.wait(_PATIENCE_S)
        return False


def test_two_threads_install_an_engine_once(monkeypatch: pytest.MonkeyPatch) -> None:
    installer, second = Installing(), threading.Event()
    monkeypatch.setattr(ssh, "required_board", lambda name, description: None)
    monkeypatch.setattr(ssh, "payload_for", lambda *given: SimpleNamespace(engine=given[-1]))
    agent = SshAgent(cast(Any, SimpleNamespace(name="board", options={})), cast(Any, None))
    agent.use(cast(Any, installer))

    def describe() -> Any:
        if installer.begun.is_set():
            second.set()

    threads = [threading.Thread(target=agent.provide, args=("tvm", describe)) for _ in range(2)]
    threads[0].start()
    assert installer.begun.wait(_PATIENCE_S)
    threads[1].start()
    # It waits for the first one; without that it asks what the board is.
    second.wait(0.2)
    installer.may_end.set()
    for thread in threads:
        thread.join(_PATIENCE_S)
    assert installer.installed == ["tvm"] and not second.is_set()
