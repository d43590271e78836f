"""Tickets: secrets that admit one connection, once, and expire.

The agent's own user requests a ticket on the board (over SSH: `python3 -m device_agent ticket`), and the
ticket travels back through the same channel. The agent stores only a hash of the ticket, in a file that only
its user can read; the public half of the ticket is its name. Time is the board's monotonic clock, which the
processes of one boot share; tickets of an earlier boot are removed with their run folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import time
from typing import Tuple

from device_agent.contract.fields import Fields
from device_agent.contract.strict_json import parse
from device_agent.errors import AgentError
from device_agent.store.private_files import private_folder, write_private

LIFETIME_S = 60.0
_LONGEST_BYTES = 4096
_TOKEN = re.compile(r"([0-9a-f]{16})\.([0-9a-f]{64})")


class TicketStore:
    """The tickets of one agent process.

    Args:
        folder: in the agent's run folder; created if necessary.
        lifetime_s: of a ticket.
    """

    def __init__(self, folder: str, lifetime_s: float = LIFETIME_S) -> None:
        self._folder = folder
        self._lifetime_s = lifetime_s
        private_folder(folder)

    def issue(self) -> str:
        """A new ticket.

        Raises:
            OSError: it cannot be written.
        """
        self.sweep()
        name, secret = secrets.token_hex(8), secrets.token_hex(32)
        fields = {"digest": _digest(secret), "expires_s": time.monotonic() + self._lifetime_s}
        write_private(os.path.join(self._folder, name), fields)
        return "%s.%s" % (name, secret)

    def admit(self, token: str) -> None:
        """Accepts a ticket, which is invalid afterwards.

        Raises:
            AgentError: there is no such ticket, it was used, or it has expired.
        """
        # One answer for all of it: guessing reveals nothing.
        refusal = AgentError("denied", "wrong secret, or a ticket that was used or has expired")
        match = _TOKEN.fullmatch(token)
        if not match:
            raise refusal
        path = os.path.join(self._folder, match.group(1))
        try:
            digest, expires_s = _read(path)
            if not hmac.compare_digest(digest, _digest(match.group(2)).encode()):
                raise refusal
            os.unlink(path)  # whoever removes it has it
        except (OSError, ValueError) as error:
            raise refusal from error
        if time.monotonic() > expires_s:
            raise refusal

    @property
    def pending(self) -> bool:
        """Whether there is an unused ticket."""
        self.sweep()
        return bool(os.listdir(self._folder))

    def sweep(self) -> None:
        """Removes tickets that have expired."""
        now = time.monotonic()
        for name in os.listdir(self._folder):
            path = os.path.join(self._folder, name)
            # One that is being written, or that a connection has taken, is not removed.
            with contextlib.suppress(OSError, ValueError):
                if now > _read(path)[1]:
                    os.unlink(path)


def _read(path: str) -> Tuple[bytes, float]:
    """The digest of a ticket, and when it expires.

    Raises:
        OSError: there is no such ticket.
        ValueError: it is none.
    """
    with open(path, "rb") as file:
        values = parse(file.read(_LONGEST_BYTES + 1), _LONGEST_BYTES, "a ticket")
    if not isinstance(values, dict):
        raise ValueError("a ticket is no object")
    fields = Fields(values, lambda text: ValueError("a ticket whose %s" % text))
    return fields.text("digest").encode(), fields.number("expires_s")


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
