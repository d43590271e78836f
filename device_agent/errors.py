"""Errors that the agent's own code raises."""

from __future__ import annotations


class ClosedError(Exception):
    """The peer closed the connection."""


class AgentError(Exception):
    """A failure that the reply reports to the host.

    Attributes:
        kind: what the host maps to one of its own errors ("bad_request", "denied", "busy",
            "no_session", "session_lost", "device_full", "bundle", "engine", "measure", "internal").
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
