"""This machine as a device whose sessions are native executors: agent, protocol and tests are the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import device_agent
from host.transport.agent import OnThisMachine
from host.transport.device import Device
from host.transport.wire import Connection
from tests.integration.agent.conftest import bundle, faults, golden, other_bundle, variants
from tests.shared_cache import executor_for
from tests.signing import trust

__all__ = ["bundle", "faults", "golden", "other_bundle", "variants"]


class NativeAgent(OnThisMachine):
    """An agent with a folder in which the native executor is the payload of tvm.

    Args:
        home: the folder.
        executable: of the executor.
    """

    def __init__(self, home: Path, executable: Path) -> None:
        payload = home / "payloads" / "native"
        payload.mkdir(parents=True)
        home.chmod(0o700)
        trust(home / "device" / "trust.json")
        (payload / "edgetlm-executor").symlink_to(executable)
        entry = {"kind": "native", "path": "payloads/native"}
        (home / "payloads.json").write_text(json.dumps({"tvm": entry}))
        self._command = [sys.executable, "-m", "device_agent"]
        self._home = home
        self._code = Path(device_agent.__file__).parents[1]
        serve = [*self._command, "serve", "--home", str(home), "--parent-pid", str(os.getpid())]
        with (home / "agent.log").open("wb") as log:
            self.process = subprocess.Popen(serve, cwd=self._code, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        assert self.process.stdout.readline(), self.end_reason()

    def connect(self) -> Connection:
        """A connection with a ticket of its own."""
        ask = [*self._command, "ticket", "--home", str(self._home)]
        done = subprocess.run(ask, cwd=self._code, capture_output=True, text=True, check=True)
        ticket = json.loads(done.stdout)
        return Connection(ticket["port"], ticket["token"], "native")

    def end_reason(self) -> str:
        """What the agent wrote."""
        return (self._home / "agent.log").read_text()

    def stop(self) -> None:
        """Ends it."""
        self.process.terminate()
        self.process.communicate(timeout=60)


@pytest.fixture(scope="session")
def executable() -> Path:
    """The native executor for this machine."""
    return executor_for("x86_64")


@pytest.fixture
def store_dir(tmp_path: Path) -> Path:
    """The agent's folder."""
    return tmp_path / "home-of-agent"


@pytest.fixture
def device(store_dir: Path, executable: Path):
    """This machine, with the native executor."""
    agent = NativeAgent(store_dir, executable)
    try:
        with Device("native", agent.connect(), True, agent) as device:
            yield device
    finally:
        agent.stop()
