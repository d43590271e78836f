"""An external meter: whatever prints its readings line by line (docs/power.md, "An external meter").

A stream of lines from a serial device, a TCP port on loopback or a program's stdout. The first line is JSON:

    {"edgetlm_meter": 1, "name": "...", "boundary": "wall", "period_s": 0.1, "accuracy": "0.5 % + 0.02 W"}

Every other line is a reading in watts, `W 4.213`. Lines that begin with # are remarks. A reading counts for
the moment of its arrival less `delay_s` of the first line (0 if it is not there). Fields of the configuration
replace those of the first line, which need not come then: so a meter can be used that knows nothing of this.
"""

from __future__ import annotations

import collections
import contextlib
import math
import os
import select
import socket
import subprocess
import threading
import time
from typing import Any, Deque, Dict, List, Optional, Tuple

from device_agent.contract import strict_json
from device_agent.contract.text import printable

SCHEMA = 1
_FIRST_S = 5.0
# From the end of a program's output to the end of the program: the system closes the one before the other.
_ENDING_S = 2.0
_LONGEST_LINE = 4096
_SHORTEST_PERIOD_S, _LONGEST_PERIOD_S = 1e-6, 3600.0
# A megawatt is no board's; currents may flow back.
_MOST_W = 1e6
_SHOWN = 100
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_KEPT = 100_000


class External:
    """A meter that sends readings by itself.

    Args:
        root: not used: a meter is where its configuration says.
        board: facts of the board; `meter` is the configuration: one of `command` (words), `tcp` ("host:port"
        on
            loopback), `serial` (path, with `baud`), and fields of the first line.
    """

    name = "external"
    order = None
    quantity = "power"

    def __init__(self, root: str = "/", board: Optional[Dict[str, Any]] = None) -> None:
        self._wanted: Dict[str, Any] = dict((board or {}).get("meter") or {})
        self._header: Dict[str, Any] = {}
        self._stream: Optional["_Stream"] = None
        self._readings: Deque[Tuple[float, float]] = collections.deque(maxlen=_KEPT)
        self._known = threading.Event()
        self._ended = ""
        self.period_s = 1.0

    def probe(self) -> Optional[str]:
        """None where the meter sends readings, else why not; starts listening to it."""
        if not self._wanted:
            return "no external meter is configured"
        if self._stream is not None and not self._ended:
            return None
        self.close()
        self._ended = ""
        try:
            self._stream = _open(self._wanted)
        except (OSError, ValueError, KeyError) as error:
            if isinstance(error, PermissionError):
                return (
                    "the external meter cannot be opened: no permission for %s; type "
                    "`sudo usermod -aG dialout $USER` and log in again" % error.filename
                )
            return "the external meter cannot be opened: %s" % error
        threading.Thread(target=self._listen, args=(self._stream,), name="meter", daemon=True).start()
        self._known.wait(_FIRST_S)
        if not self._readings:
            # Before it is closed, by which its program would end with another code.
            ended = self._ended
            self.close()
            if ended:
                return "the external meter sent no reading (%s)" % ended
            return "the external meter sent no reading within %g s" % _FIRST_S
        missing = [name for name in ("boundary", "period_s") if name not in self._fields()]
        if missing:
            self.close()
            return "the external meter does not say its %s" % " and ".join(missing)
        try:
            self.period_s = _number(self._fields()["period_s"], _SHORTEST_PERIOD_S, _LONGEST_PERIOD_S)
        except ValueError as error:
            self.close()
            return "the external meter says a wrong period_s: %s" % error
        return None

    def _fields(self) -> Dict[str, Any]:
        return dict(self._header, **self._wanted)

    def _listen(self, stream: "_Stream") -> None:
        pending = b""
        try:
            while True:
                data = stream.receive()
                now = time.monotonic()
                if not data:
                    self._ended = stream.ending()
                    break
                lines = (pending + data).split(b"\n")
                pending = lines.pop()[-_LONGEST_LINE:]
                for line in lines:
                    self._line(line.decode("utf-8", "replace").strip(), now)
        except (OSError, ValueError) as error:
            self._ended = printable(error)
        finally:
            stream.release()
            self._known.set()

    def _line(self, line: str, now: float) -> None:
        if line.startswith("{"):
            header = strict_json.parse(line.encode(), _LONGEST_LINE, "its first line")
            if header.get("edgetlm_meter") != SCHEMA:
                raise ValueError("its first line is not of protocol %d: %s" % (SCHEMA, line[:80]))
            self._header = header
        elif line.startswith("W "):
            watts = _number(float(line[2:]), -_MOST_W, _MOST_W)
            delay_s = _number(self._fields().get("delay_s", 0.0), 0.0, _LONGEST_PERIOD_S)
            self._readings.append((now - delay_s, watts))
            self._known.set()

    def take(self) -> List[Tuple[float, float]]:
        """The readings since the last call: (seconds of CLOCK_MONOTONIC, watts).

        Raises:
            OSError: the meter has gone.
        """
        taken = []
        while self._readings:
            taken.append(self._readings.popleft())
        if not taken and self._ended:
            raise OSError("the external meter is gone: %s" % self._ended)
        return taken

    def read(self) -> float:
        """The next reading, watts.

        Raises:
            OSError: none comes.
        """
        until = time.monotonic() + max(_FIRST_S, 3 * self.period_s)
        while time.monotonic() < until:
            taken = self.take()
            if taken:
                return taken[-1][1]
            time.sleep(min(0.05, self.period_s))
        raise OSError("the external meter is silent")

    def describe(self) -> Dict[str, Any]:
        """The meter's description of itself."""
        fields = self._fields()
        return {
            "kind": "measured",
            "source": "external: %s" % printable(fields.get("name", "meter"), _SHOWN),
            "quantity": self.quantity,
            "rails": [printable(fields.get("name", "meter"), _SHOWN)],
            "boundary": printable(fields.get("boundary", ""), _SHOWN),
            "period_s": self.period_s,
            "accuracy": printable(fields.get("accuracy", ""), _SHOWN),
        }

    def close(self) -> None:
        """Ends what was started."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        self._readings.clear()
        self._known.clear()


def _number(value: Any, low: float, high: float) -> float:
    """A finite number of this range.

    Raises:
        ValueError: it is none.
    """
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not usable or not low <= value <= high:
        raise ValueError("%s is not from %g to %g" % (printable(value, 40), low, high))
    return float(value)


class _Stream:
    """Where lines come from: a file descriptor and what belongs to it."""

    def __init__(self, descriptor: int, process: Optional["subprocess.Popen[bytes]"] = None) -> None:
        self._descriptor = descriptor
        self._process = process
        self._wake_reader, self._wake_writer = os.pipe()

    def receive(self) -> bytes:
        """The bytes that came; b"" at the end."""
        ready, _, _ = select.select([self._descriptor, self._wake_reader], [], [])
        return b"" if self._wake_reader in ready else os.read(self._descriptor, 65536)

    def release(self) -> None:
        """Called by the listener alone: otherwise it could read a descriptor that was closed and reused."""
        for descriptor in (self._descriptor, self._wake_reader):
            os.close(descriptor)

    def ending(self) -> str:
        """How it ended, in words; called after the end of its output.

        The output of a program that ends is closed first, and its exit code is known a moment later.
        """
        if self._process is None:
            return "it ended"
        try:
            return "it ended with code %d" % self._process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            return "it closed its output and goes on"

    def close(self) -> None:
        """Ends the program and has the listener return."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        with contextlib.suppress(OSError):
            os.close(self._wake_writer)


def _open(wanted: Dict[str, Any]) -> _Stream:
    """Starts listening.

    Raises:
        OSError: it cannot be opened.
        ValueError: the configuration makes no sense.
    """
    if "command" in wanted:
        words = [str(word) for word in wanted["command"]]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert process.stdout is not None
        with process.stdout as stdout:
            return _Stream(os.dup(stdout.fileno()), process)
    if "tcp" in wanted:
        host, _, port = str(wanted["tcp"]).rpartition(":")
        if host not in _LOOPBACK:
            raise ValueError("tcp = %r is not on this machine; forward the port over SSH" % wanted["tcp"])
        with socket.create_connection((host, int(port)), timeout=_FIRST_S) as connection:
            connection.settimeout(None)
            return _Stream(os.dup(connection.fileno()))
    if "serial" in wanted:
        return _Stream(_serial(str(wanted["serial"]), int(wanted.get("baud", 115200))))
    raise ValueError("it needs one of command, tcp and serial")


def _serial(path: str, baud: int) -> int:
    import termios

    speed = getattr(termios, "B%d" % baud, None)
    if speed is None:
        raise ValueError("%d is no baud rate of this system" % baud)
    descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        settings = termios.tcgetattr(descriptor)
        # Raw: eight bits, no echo, no interpretation.
        settings[0] = settings[1] = settings[3] = 0
        settings[2] = termios.CS8 | termios.CREAD | termios.CLOCAL
        settings[4] = settings[5] = speed
        termios.tcsetattr(descriptor, termios.TCSANOW, settings)
    except termios.error as error:
        os.close(descriptor)
        raise OSError("%s is no serial device: %s" % (path, error)) from error
    return descriptor


SENSORS = (External,)
