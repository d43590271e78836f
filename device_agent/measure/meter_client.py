"""The meter process, with the same operations as `PowerMeter`, for an executor."""

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
    """The meter process ended or refused a request; the message is one line."""


class MeterProcess:
    """Starts the meter process at the first request, because most sessions never measure energy.

    Args:
        command: command line of the process.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._process: Optional["subprocess.Popen[bytes]"] = None

    @property
    def pid(self) -> int:
        """The process id; 0 while there is no process."""
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
                # Closing flushes unsent data, which fails if the process has ended.
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
            self.close()  # later lines could not be matched to requests
            raise MeterLost(str(error)) from error
        if not isinstance(answer, dict):
            self.close()
            raise MeterLost("what the power meter sent is no object")
        if "error" in answer:
            raise MeterLost("the power meter refuses %s: %s" % (request["do"], printable(answer["error"])))
        return answer


def meter_for(command: Optional[List[str]], machine: Machine, root: str) -> Any:
    """The meter of an executor: a process if the daemon gives a command line, else a meter in this process.

    Args:
        command: see `MeterProcess`.
        machine: machine whose state is read.
        root: prefix of all system paths.
    """
    return MeterProcess(command) if command else PowerMeter(machine, power.choose(root))
