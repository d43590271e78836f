"""Command lines of executors: of an installed payload, or of the agent's own interpreter.

`payloads.json` in the agent's folder, written by the host when it installs:
`{"tvm": {"kind": "native"|"python", "path": "payloads/HASH", "launcher": [...], "python": "..."}, ...}`. The
last two are optional: a command that the native executable is run by, and another interpreter.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Optional, Tuple

from device_agent.contract.manifest import OF_THE_BOARD
from device_agent.errors import AgentError
from device_agent.store.agent_folder import AgentFolder

NATIVE_NAME = "edgetlm-executor"


class Payloads:
    """The installed payloads.

    Args:
        home: None for an agent without one: its own interpreter serves every engine.
        python: interpreter of executors and of the meter.
        system_root: prefix of all system paths.
    """

    def __init__(self, home: Optional[AgentFolder], python: str, system_root: str = "/") -> None:
        self._home = home
        self._python = python
        self._system_root = system_root

    def command(self, engine: str, python: Optional[str] = None) -> Tuple[List[str], str]:
        """Command line of an engine's executor, and the folder that it imports from ("" for its own).

        Args:
            engine: of `device_agent.execute.engines`.
            python: an interpreter that the host names, in which the engine is installed.

        Raises:
            AgentError: no installed payload serves the engine.
        """
        if python:
            return _executor(python), ""
        entries = self._entries()
        if entries is None or self._home is None:
            return _executor(self._python), ""
        entry = entries.get(engine)
        if entry is None and engine in OF_THE_BOARD:
            return _executor(self._python), ""
        if entry is None:
            raise AgentError(
                "engine",
                "no payload for %s is installed on this device (%s are); install it from the host"
                % (engine, ", ".join(sorted(entries)) or "none"),
            )
        folder = os.path.realpath(os.path.join(self._home.root, str(entry["path"])))
        if not os.path.isdir(folder):
            raise AgentError(
                "engine", "the payload of %s is gone (%s); install the agent again" % (engine, folder)
            )
        if entry["kind"] == "native":
            return [str(word) for word in entry.get("launcher", [])] + [os.path.join(folder, NATIVE_NAME)], ""
        return _executor(str(entry.get("python") or self._python)), folder

    def meter(self) -> List[str]:
        """Command line of the process that reads power sensors for an executor."""
        command = [self._python, "-m", "device_agent.measure.meter", "--system-root", self._system_root]
        if self._home is not None and os.path.exists(self._home.board):
            command += ["--board", self._home.board]
        return command

    def _entries(self) -> Optional[Dict[str, Dict[str, Any]]]:
        if self._home is None:
            return None
        try:
            with open(self._home.payloads, encoding="utf-8") as file:
                return dict(json.load(file))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise AgentError(
                "engine", "%s cannot be read (%s); install the agent again" % (self._home.payloads, error)
            ) from error


def _executor(python: str) -> List[str]:
    return [python, "-m", "device_agent.execute.executor"]
