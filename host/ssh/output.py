"""The output of a command on a board, with bounds on its size and time."""

from __future__ import annotations

import select
import time
from dataclasses import dataclass

import paramiko

from device_agent.contract.limits import LIMITS
from device_agent.contract.text import printable

_READ_BYTES = 1 << 16


@dataclass(frozen=True)
class Completed:
    """A command that ended on the board.

    Attributes:
        code: its exit status, -1 if a signal ended it.
        stdout: its standard output.
        stderr: its standard error.
    """

    code: int
    stdout: bytes
    stderr: str

    def error_line(self) -> str:
        """The last line of its standard error, or its exit status; safe to show."""
        lines = [line for line in self.stderr.splitlines() if line.strip()]
        return printable(lines[-1]) if lines else f"exit status {self.code}"


class TooMuchOutput(Exception):
    """A command wrote more than it may; the message says how much that is."""


def collect(channel: paramiko.Channel, until: float) -> tuple[bytes, bytes]:
    """All that a command writes, and all of its messages, until it ends.

    Both are read as they arrive: a command whose one pipe is full would otherwise never end.

    Args:
        channel: of the command.
        until: time.monotonic() at which the command has to have ended.

    Raises:
        TooMuchOutput: one of them is beyond its bound.
        TimeoutError: the time is up, even if data still arrives.
    """
    output, messages = bytearray(), bytearray()
    ends = (
        (output, channel.recv_ready, channel.recv, LIMITS.ssh.stdout_bytes, "output"),
        (messages, channel.recv_stderr_ready, channel.recv_stderr, LIMITS.ssh.stderr_bytes, "messages"),
    )
    poll = select.poll()
    poll.register(channel.fileno(), select.POLLIN)
    while True:
        # Before the data: what came before the end is in the buffers by then.
        ended = channel.eof_received or channel.closed
        for kept, ready, receive, bound, name in ends:
            while ready():
                if time.monotonic() >= until:
                    raise TimeoutError
                kept += receive(_READ_BYTES)
                if len(kept) > bound:
                    raise TooMuchOutput(f"more than {bound >> 10} KiB of {name}")
        if ended:
            return bytes(output), bytes(messages)
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        poll.poll(left * 1e3)
