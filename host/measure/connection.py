"""The RPC connection of a session that measures libraries: uploading, loading, calling, and what may fail."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from device_agent.contract.limits import LIMITS
from device_agent.contract.strict_json import parse
from host.closing import Closing
from host.errors import MeasureError, SessionLost
from host.transport.replies import shown

if TYPE_CHECKING:
    from host.transport.session import Session

_REMOTE_ERROR = "Error caught from RPC call"


class LibraryConnection(Closing):
    """Libraries in the executor of one session; a context manager.

    It connects when it is first used, and again after the executor was replaced.

    Args:
        session: of the engine tvm.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._remote: Any = None
        self._functions: dict[str, Any] = {}

    @property
    def remote(self) -> Any:
        """The `tvm.rpc.RPCSession`.

        Raises:
            SessionLost: the executor does not answer.
        """
        if self._remote is None:
            self._remote = self._session.rpc()
        return self._remote

    def load(self, library: Path) -> Any:
        """Upload and load a library. The module is freed on the device when nothing refers to it here."""
        data = library.read_bytes()
        name = f"{hashlib.sha256(data).hexdigest()[:16]}.so"
        self.remote.upload(bytearray(data), name)
        try:
            return self.remote.load_module(name)
        finally:
            # What could be loaded is mapped by now; searches must not fill the device.
            self.remote.remove(name)

    def ask(self, what: str, function: str, *arguments: Any) -> dict[str, Any]:
        """Call a function of the agent that answers with a JSON object.

        Args:
            what: is measured, for messages.
            function: name of the agent's function.
            arguments: of the function.

        Raises:
            MeasureError: the answer is no object.
        """
        if function not in self._functions:
            self._functions[function] = self.remote.get_function(function)
        text = str(self._functions[function](*arguments))
        try:
            reply = parse(text.encode("utf-8", "surrogatepass"), LIMITS.wire.header_bytes, "the answer")
        except ValueError as error:
            raise MeasureError(f"{what} cannot be measured: {error}") from error
        if not isinstance(reply, dict):
            raise MeasureError(f"{what} cannot be measured: the answer is no object")
        return reply

    @contextmanager
    def measuring(self, what: str) -> Iterator[None]:
        """A context in which whatever fails on the connection becomes an error of the host.

        Args:
            what: is measured, for messages.

        Raises:
            MeasureError: the device refused, or what is measured failed.
            SessionLost: the executor is gone.
        """
        try:
            yield
        except (MeasureError, SessionLost):
            raise
        except Exception as error:  # tvm_ffi raises any registered class, by name
            raise self._failure(what, error) from error

    def _failure(self, what: str, error: Exception) -> Exception:
        # The server reports what a function raised; any other error means that the connection broke.
        lost = self._session.lost_reason(0.0 if _REMOTE_ERROR in str(error) else 2.0)
        if lost is not None:
            self._forget()
            return SessionLost(f"{what}: {lost}")
        lines = [line for line in str(error).splitlines() if line.strip()] or [repr(error)]
        return MeasureError(f"{what} cannot be measured: {shown(lines[-1].strip())}")

    def close(self) -> None:
        """End the connection; what is left of it in the traceback of an error does no harm."""
        remote = self._remote
        self._forget()
        if remote is not None:
            remote.get_function("CloseRPCConnection")()

    def _forget(self) -> None:
        self._remote = None
        self._functions.clear()
