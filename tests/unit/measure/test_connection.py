"""The connection that loads libraries: what is left on the device, what is asked, and what the errors say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from host.errors import MeasureError, SessionLost
from host.measure.connection import LibraryConnection


class Remote:
    """A device's end of RPC.

    Args:
        answer: of every function; an exception is raised.
    """

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.files: set[str] = set()
        self.looked_up: list[str] = []
        self.closed = False

    def upload(self, data: bytearray, name: str) -> None:
        self.files.add(name)

    def load_module(self, name: str) -> Any:
        assert name in self.files
        return self._said()

    def remove(self, name: str) -> None:
        self.files.remove(name)

    def get_function(self, name: str) -> Any:
        self.looked_up.append(name)
        return self._close if name == "CloseRPCConnection" else lambda *arguments: self._said()

    def _close(self) -> None:
        self.closed = True

    def _said(self) -> object:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Session:
    """A session whose executors have one end of RPC each."""

    def __init__(self, *remotes: Remote) -> None:
        self._remotes = list(remotes)
        self.lost: str | None = None

    def rpc(self) -> Remote:
        return self._remotes.pop(0)

    def lost_reason(self, wait_s: float) -> str | None:
        return self.lost


def connection_to(*remotes: Remote) -> tuple[LibraryConnection, Session]:
    session = Session(*remotes)
    return LibraryConnection(session), session  # type: ignore[arg-type]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "lib.so"
    path.write_bytes(b"code")
    return path


@pytest.mark.parametrize("answer", ["module", RuntimeError("Error caught from RPC call:\nno library")])
def test_an_uploaded_library_does_not_stay(library: Path, answer: object) -> None:
    remote = Remote(answer)
    connection, _ = connection_to(remote)
    if isinstance(answer, Exception):
        with (
            pytest.raises(MeasureError, match=r"^it cannot be measured: no library$"),
            connection.measuring("it"),
        ):
            connection.load(library)
    else:
        assert connection.load(library) == "module"
    assert remote.files == set()


def test_a_function_is_looked_up_once_and_answers_with_an_object() -> None:
    remote = Remote('{"a": [1, 2.5]}')
    connection, _ = connection_to(remote)
    for _ in range(2):
        assert connection.ask("it", "measure", "module") == {"a": [1, 2.5]}
    assert remote.looked_up == ["measure"]
    connection.close()
    connection.close()
    assert remote.closed


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", "7", '{"a": NaN}', '{"a": 1, "a": 2}', "[" * 10**5, "\ud800"]
)
def test_an_answer_that_is_no_object_is_refused(text: str) -> None:
    connection, _ = connection_to(Remote(text))
    with pytest.raises(MeasureError, match=r"^it cannot be measured: ") as caught, connection.measuring("it"):
        connection.ask("it", "measure")
    assert str(caught.value).isprintable()


def test_the_reason_of_the_device_is_fit_to_be_shown() -> None:
    error = RuntimeError(
        "Error caught from RPC call:\nTraceback\n  \x1b[31mred\x1b[0m " + "x" * 10**5 + "\n\n"
    )
    connection, _ = connection_to(Remote(error))
    with (
        pytest.raises(MeasureError, match=r"it cannot be measured: .*red") as caught,
        connection.measuring("it"),
    ):
        connection.ask("it", "measure")
    assert str(caught.value).isprintable() and len(str(caught.value)) < 2000


def test_a_new_executor_is_connected_to_after_the_old_one_is_gone() -> None:
    old, new = Remote(ConnectionResetError()), Remote("{}")
    connection, session = connection_to(old, new)
    session.lost = "the tvm executor crashed with SIGSEGV"
    with pytest.raises(SessionLost, match=r"^it: the tvm executor crashed"), connection.measuring("it"):
        connection.ask("it", "measure")
    assert connection.ask("it", "measure") == {}
    assert (old.looked_up, new.looked_up) == (["measure"], ["measure"])


def test_an_error_without_words_has_its_name() -> None:
    connection, _ = connection_to(Remote(ConnectionResetError()))
    reason = r"cannot be measured: ConnectionResetError\(\)"
    with pytest.raises(MeasureError, match=reason), connection.measuring("it"):
        connection.ask("it", "measure")
