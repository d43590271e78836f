"""The secret of a connection to an executor, or to an agent that its only host has started."""

from __future__ import annotations

import hmac

from device_agent.errors import AgentError


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
