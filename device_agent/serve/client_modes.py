"""Power modes of clients: a mode is restored when its client or session ends."""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, NamedTuple, Optional

from device_agent.errors import AgentError
from device_agent.power.modes import PowerModes
from device_agent.serve.reservation import Client, DeviceReservation


class _User(NamedTuple):
    client: Client
    session: str


class ClientPowerModes:
    """Power modes for the clients of one agent.

    Args:
        modes: of the machine.
        reservation: of the device, which a client has while a mode is changed for it.
        recover: restores modes that killed agents left changed, before the first change.
        log: receives a line about modes that could not be restored.
    """

    def __init__(
        self,
        modes: PowerModes,
        reservation: DeviceReservation,
        recover: Callable[[], None],
        log: Callable[[str], None],
    ) -> None:
        self._modes = modes
        self._reservation = reservation
        self._recover = recover
        self._log = log
        self._lock = threading.RLock()
        self._user: Optional[_User] = None

    @property
    def unrestored(self) -> bool:
        """Whether some mode is still changed."""
        return self._modes.changed

    def list(self) -> Dict[str, Any]:
        """The reply to `modes.list`."""
        with self._lock:
            return self._modes.list()

    def set(self, client: Client, name: str, session: str = "") -> Dict[str, Any]:
        """Puts the device into a mode for a client.

        Args:
            client: that makes the request; it has the device until the mode is restored.
            name: of the mode.
            session: whose end restores the mode, "" for the end of the client or its request.

        Returns:
            The reply to `modes.list` afterwards.

        Raises:
            AgentError: another client has the device, or the mode cannot be set.
        """
        with self._lock:
            if self._user is None:
                self._reservation.acquire(client)
                self._user = _User(client, session)
                self._recover()
                self._modes.restore()  # what an earlier client's end could not
            elif self._user.client != client:
                raise AgentError("busy", "power modes are set by %s" % self._user.client.name)
            elif not session:
                self._user = _User(client, "")
            try:
                self._modes.set(name)
            finally:
                if not self._modes.changed:  # it is as it was found, or nothing was done
                    self._forget()
            return self._modes.list()

    def restore(self, client: Client) -> None:
        """Restores the modes at the request of a client.

        Raises:
            AgentError: another client changed them, or something could not be restored.
        """
        with self._lock:
            if self._user is not None and self._user.client != client:
                raise AgentError("busy", "power modes are set by %s" % self._user.client.name)
            self._modes.restore()
            self._forget()

    def session_ended(self, name: str) -> None:
        """Restores the modes that were set for a session."""
        with self._lock:
            if self._user is not None and self._user.session == name:
                self._end()

    def client_ended(self, client: Client) -> None:
        """Restores the modes that a disconnected client has set."""
        with self._lock:
            if self._user is not None and self._user.client == client:
                self._end()

    def close(self) -> None:
        """Restores everything at the end of the agent."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        try:
            self._modes.restore()
        except (AgentError, OSError, ValueError) as error:
            self._log("%s; the next start tries again" % error)
        self._forget()

    def _forget(self) -> None:
        if self._user is not None:
            self._reservation.release(self._user.client)
            self._user = None
