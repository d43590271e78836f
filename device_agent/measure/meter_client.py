"""The meter process as an executor sees it; the same operations as `PowerMeter`."""

from __future__ import annotations

import contextlib
import json
import subprocess
from typing import Any, Dict, List, Mapping, Optional, Sequence

from device_agent import power
from device_agent.board.machine import Machine
from device_agent.contract.limits import LIMITS
from device_agent.contract.strict_json import parse
from device_agent.contract.text import printable
from device_agent.measure.meter import PowerMeter


class MeterLost(Exception):
    """The meter process ended or refuses; the message is one line."""


class MeterProcess:
    """Starts the meter when it is first asked for something: most sessions never measure energy.

    Args:
        command: its command line.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._process: Optional["subprocess.Popen[bytes]"] = None

    @property
    def pid(self) -> int:
        """Its process id, 0 while there is none."""
        return self._process.pid if self._process is not None else 0

    def probe(self) -> Dict[str, Any]:
        """See PowerMeter."""
        return self._ask({"do": "probe"})

    def idle(self, seconds: float) -> Dict[str, Any]:
        """See PowerMeter."""
        return self._ask({"do": "idle", "seconds": seconds})

    def begin(self, plan: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
        """See PowerMeter."""
        return self._ask({"do": "begin", "plan": dict(plan)} if plan is not None else {"do": "begin"})

    def end(self, start_s: float, end_s: float, runs: int) -> Dict[str, Any]:
        """See PowerMeter."""
        return self._ask({"do": "end", "start_s": start_s, "end_s": end_s, "runs": runs})

    def close(self) -> None:
        """Ends the process."""
        process, self._process = self._process, None
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                # What it was to be told and is not any more.
                with contextlib.suppress(OSError):
                    pipe and pipe.close()
            process.kill()
            process.wait()

    def _ask(self, request: Dict[str, Any]) -> Dict[str, Any]:
        try:
            if self._process is None:
                self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert self._process.stdin is not None and self._process.stdout is not None
            self._process.stdin.write((json.dumps(request) + "\n").encode())
            self._process.stdin.flush()
            line = self._process.stdout.readline(LIMITS.wire.meter_line_bytes + 1)
        except OSError as error:
            raise MeterLost("the power meter cannot be asked: %s" % error) from error
        if not line:
            raise MeterLost("the power meter ended with code %s" % self._process.wait())
        try:
            answer = parse(line, LIMITS.wire.meter_line_bytes, "what the power meter sent")
        except ValueError as error:
            self.close()  # what it says from here on belongs to no question
            raise MeterLost(str(error)) from error
        if not isinstance(answer, dict):
            self.close()
            raise MeterLost("what the power meter sent is no object")
        if "error" in answer:
            raise MeterLost("the power meter refuses %s: %s" % (request["do"], printable(answer["error"])))
        return answer


def meter_for(command: Optional[List[str]], machine: Machine, root: str) -> Any:
    """The meter of an executor: a process where the daemon gives its command line, else in this process.

    Args:
        command: see `MeterProcess`.
        machine: whose state counts.
        root: prefix of all system paths.
    """
    return MeterProcess(command) if command else PowerMeter(machine, power.choose(root))
