"""Checks of the address of an SSH server: hosts and users, wherever they are written.

The parts may end up in the user's `ProxyCommand` or `Match exec`, which a shell reads, and in commands that
messages advise the user to type: nothing is accepted that a shell interprets or ssh reads as an option.
"""

from __future__ import annotations

import re

from host.errors import UserError

LARGEST_PORT = 65535
_LONGEST_HOST = 255
_LONGEST_USER = 64
# A backslash (of `DOMAIN\user`) only before a letter or a digit: never before a quotation mark.
_USER = r"[A-Za-z0-9_.+](?:[A-Za-z0-9_.+-]|\\(?=[A-Za-z0-9]))*"
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_IPV6 = r"[0-9A-Fa-f:][0-9A-Fa-f:.]*(?:%[A-Za-z0-9_.-]+)?"
_USERS = re.compile(_USER)
_HOSTS = re.compile(f"{_NAME}|{_IPV6}")
_ADDRESS = re.compile(
    rf"(?:(?P<user>{_USER})@)?(?:\[(?P<v6>{_IPV6})\]|(?P<host>{_NAME}))(?::(?P<port>[0-9]{{1,5}}))?"
)


def is_host(text: str) -> bool:
    """Whether a text can be a host's name or address."""
    return len(text) <= _LONGEST_HOST and _HOSTS.fullmatch(text) is not None


def is_user(text: str) -> bool:
    """Whether a text can be a user's name on a board."""
    return len(text) <= _LONGEST_USER and _USERS.fullmatch(text) is not None


def is_port(number: int) -> bool:
    """Whether a number can be a port."""
    return 1 <= number <= LARGEST_PORT


def parse_address(text: str, where: str = "--host") -> tuple[str, str, int]:
    """User ("" if not given), host and port (0 if not given) of `user@host:port`; IPv6 in brackets.

    Args:
        text: the address.
        where: it stands, for the message.

    Raises:
        UserError: it is no address.
    """
    found = _ADDRESS.fullmatch(text)
    user = (found["user"] or "") if found else ""
    host = (found["v6"] or found["host"]) if found else ""
    port = int(found["port"] or 0) if found else 0
    if not is_host(host) or (user and not is_user(user)) or port > LARGEST_PORT:
        raise UserError(f"{where} {text!r} is no address; write it as user@address or user@address:port")
    return user, host, port
