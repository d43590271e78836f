"""Remarks for the user from far below the command line: what was done to a device without being asked for."""

from __future__ import annotations

import logging

# Above warnings, which are other libraries' business and are not shown.
LEVEL = 35
_LOGGER = logging.getLogger("edgetlm.notes")


def note(text: str) -> None:
    """Report something that the user should know, in one line."""
    _LOGGER.log(LEVEL, "%s", text)


def show(handler: logging.Handler) -> None:
    """Show remarks with this handler, which replaces the one before."""
    _LOGGER.handlers = [handler]
    _LOGGER.propagate = False
