"""What a device prints as a ticket, and what is none."""

from __future__ import annotations

import json

import pytest

from host.errors import DeviceError
from host.transport.ticket import Ticket, ticket_of
from host.transport.wire import SCHEMA

GOOD = {"port": 5, "token": "t", "pid": 1, "schema": SCHEMA}


def test_the_last_line_is_the_ticket() -> None:
    assert ticket_of("board", b"Welcome!\n\xff\xfe\n" + json.dumps(GOOD).encode() + b"\n") == Ticket(5, "t")


@pytest.mark.parametrize(
    "printed",
    [
        b"",
        b"\n\n",
        b"{",
        b"[]",
        b"5",
        b"\xff",
        b"[" * 4000,
        b"x" * 100_000,
        *(
            json.dumps({**GOOD, name: value}).encode()
            for name in ("port", "token")
            for value in (None, [], {}, 1.5)
        ),
        *(json.dumps({**GOOD, "port": value}).encode() for value in (0, 65536, "5", True, -1)),
        *(json.dumps({**GOOD, "schema": value}).encode() for value in (None, 5, "edgetlm/0", "\x1b[31m", "")),
    ],
)
def test_what_is_no_ticket_is_an_error_of_one_line(printed: bytes) -> None:
    with pytest.raises(DeviceError, match=r"^board: ") as caught:
        ticket_of("board", printed)
    assert str(caught.value).isprintable()
