"""A board out of a file: models run on this machine, time, power and heat are those of a simulation.

All of the agent is real, its sensors and its arithmetic of energy too: only the clock that measures and the
files that show power and temperature are the simulation's (`device_agent.simulation`).
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import tempfile
import weakref
from pathlib import Path

from host.emulation.scenario import read_scenario, write_system
from host.errors import DeviceError, EdgeError
from host.transport.device import Device, enrolled
from host.transport.local import LocalAgent, default_store
from host.transport.wire import Connection

# Executors are the simulation's; the daemon and whatever else it starts is this machine's own.
_PYTHON = """#!/bin/sh
if [ "$2" = device_agent.execute.executor ]; then
    exec {python} -m device_agent.simulation.executor {scenario}
fi
exec {python} "$@"
"""


class ReplayAgent(LocalAgent):
    """The agent of a simulated board, a child of the host.

    Args:
        path: of the file that describes the board.
        store: folder of its bundles.

    Raises:
        UserError: the file does not describe a board.
        DeviceError: the agent does not start.
    """

    def __init__(self, path: Path, store: Path) -> None:
        scenario = read_scenario(path)
        self.board_folder = Path(tempfile.mkdtemp(prefix="edgetlm-replay-"))
        try:
            system, python = self.board_folder / "system", self.board_folder / "python"
            described = self.board_folder / "scenario.json"
            write_system(scenario, system)
            described.write_text(json.dumps(scenario.for_agent()))
            words = {"python": shlex.quote(sys.executable), "scenario": shlex.quote(str(described))}
            python.write_text(_PYTHON.format(**words))
            python.chmod(0o700)
            super().__init__(store, None, system, python)
        except BaseException:
            shutil.rmtree(self.board_folder, ignore_errors=True)
            raise

    def stop(self) -> None:
        """End the agent and remove the board's files."""
        super().stop()
        shutil.rmtree(self.board_folder, ignore_errors=True)


def connect_replay(path: Path) -> Device:
    """Start a simulated board and connect to it.

    Args:
        path: of the file that describes it.

    Raises:
        UserError: the file does not describe a board.
        DeviceError: the agent does not start.
    """
    # Every board has bundles of its own, and keeps them.
    store = default_store().parent / "replay" / path.stem
    try:
        agent = ReplayAgent(path, store)
    except OSError as error:
        raise DeviceError(
            f"the simulated board {path} cannot be started: {error}; free some space"
        ) from error
    name = f"replay:{path}"
    try:
        connection = Connection(agent.port, agent.token, name)
    except EdgeError:
        agent.stop()
        raise
    weakref.finalize(connection, agent.stop)
    return enrolled(Device(name, connection, True, agent))
