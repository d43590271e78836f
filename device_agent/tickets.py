"""Tickets: secrets that let one connection in, once, and expire.

A ticket is asked for on the board, by the agent's own user (over SSH: `python3 -m device_agent ticket`), and
travels back through the channel that it was asked for in. The agent keeps no ticket, only a hash, in a file
that only its user can read, named by the ticket's public half. Time is the board's monotonic clock, which
the processes of one boot share; what an earlier boot left is removed with the run folder that it lies in.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import time

from device_agent.home import private_folder, write_private
from device_agent.wire import AgentError

LIFETIME_S = 60.0
_TOKEN = re.compile(r"([0-9a-f]{16})\.([0-9a-f]{64})")


class TicketBox:
    """The tickets of one agent process.

    Args:
        folder: of the agent's run folder; made if need be.
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
        """Takes a ticket, which is worth nothing afterwards.

        Raises:
            AgentError: there is no such ticket, it was used, or it has expired.
        """
        # One answer for all of it: whoever guesses learns nothing.
        refusal = AgentError("denied", "wrong secret, or a ticket that was used or has expired")
        match = _TOKEN.fullmatch(token)
        if not match:
            raise refusal
        path = os.path.join(self._folder, match.group(1))
        try:
            with open(path, encoding="utf-8") as file:
                fields = json.load(file)
            if not hmac.compare_digest(str(fields["digest"]), _digest(match.group(2))):
                raise refusal
            os.unlink(path)  # whoever removes it has it
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise refusal from error
        if time.monotonic() > float(fields["expires_s"]):
            raise refusal

    @property
    def pending(self) -> bool:
        """Whether somebody has a ticket that was not used yet."""
        self.sweep()
        return bool(os.listdir(self._folder))

    def sweep(self) -> None:
        """Removes tickets that have expired."""
        now = time.monotonic()
        for name in os.listdir(self._folder):
            path = os.path.join(self._folder, name)
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                with open(path, encoding="utf-8") as file:
                    expired = now > float(json.load(file)["expires_s"])
                if expired:
                    os.unlink(path)


class SharedToken:
    """One secret for all connections: that of an agent started by its only host.

    Args:
        token: the secret.
    """

    def __init__(self, token: str) -> None:
        self._token = token

    @property
    def empty(self) -> bool:
        """Whether it is no secret at all."""
        return not self._token

    def admit(self, token: str) -> None:
        """Compares.

        Raises:
            AgentError: another secret.
        """
        # Text that is no UTF-8 is compared as well as any other, and is wrong.
        given = token.encode("utf-8", "surrogatepass")
        if not hmac.compare_digest(given, self._token.encode()):
            raise AgentError("denied", "wrong secret")


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
