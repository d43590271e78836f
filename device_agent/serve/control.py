"""The agent as a service: start, stop and status."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from typing import Any, Dict, List

from device_agent.contract.limits import LIMITS
from device_agent.contract.text import printable
from device_agent.errors import AgentError, ClosedError
from device_agent.serve.tickets import TicketStore
from device_agent.store.agent_folder import AgentFolder
from device_agent.store.private_files import locked
from device_agent.wire import frames
from device_agent.wire.frames import Header

UNIT = "edgetlm-agent.service"
SYSTEM_UNITS = "/etc/systemd/system"
# With which the agent ends when it has made room for another version: systemd starts that.
RETIRED = 75
# The folder of the package.
CODE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
# Started by hand and not used, it ends; the next ticket starts it again.
IDLE_LIMIT_S = 3600.0
_START_S = 60.0
_STOP_S = 90.0
# systemd waits a little before it starts an agent again that has ended.
_RESTART_S = 30.0


def ticket(home: AgentFolder, python: str) -> Dict[str, Any]:
    """A ticket of the running agent, which is started if necessary.

    Args:
        home: the agent's folder.
        python: interpreter of the agent and its executors.

    Returns:
        `port`, `token`, `pid`, `schema`.

    Raises:
        AgentError: the agent cannot be started, or one of another version is in use.
        OSError: the folder cannot be written to.
    """
    record = start(home, python)
    token = TicketStore(os.path.join(record["folder"], "tickets")).issue()
    return {"port": record["port"], "token": token, "pid": record["pid"], "schema": record["schema"]}


def start(home: AgentFolder, python: str) -> Dict[str, Any]:
    """Starts the agent unless it runs; an agent of another version is replaced if no client uses it.

    Returns:
        The content of its `agent.json`.

    Raises:
        AgentError: it cannot be started, or one of another version is in use.
        OSError: the folder cannot be written to.
    """
    home.make()
    with locked(os.path.join(home.device, "start.lock")):
        record = home.running()
        if record is not None and record["code"] != CODE:
            ask(record, "retire")
            _await_end(home)
            record = None
        if record is not None:
            return record
        if _names(os.path.join(SYSTEM_UNITS, UNIT), home):
            return _await_system_unit(home)
        return _start_unit(home) if _names(_user_unit(), home) else _start_detached(home, python)


def stop(home: AgentFolder) -> bool:
    """Ends the agent with all its sessions; False if none runs.

    Raises:
        AgentError: it does not end.
    """
    record = home.running()
    if record is None:
        return False
    if _names(os.path.join(SYSTEM_UNITS, UNIT), home):
        raise AgentError("bad_request", "systemd keeps the agent; type: sudo systemctl stop %s" % UNIT)
    if _names(_user_unit(), home):
        _systemctl("stop")
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(record["pid"]), signal.SIGTERM)
    _await_end(home)
    return True


def ask(record: Dict[str, Any], command: str) -> Header:
    """Sends one request to the running agent, with a new ticket.

    Args:
        record: the content of `agent.json`.
        command: without arguments.

    Raises:
        AgentError: the agent refuses, or does not answer.
    """
    token = TicketStore(os.path.join(record["folder"], "tickets")).issue()
    try:
        with socket.create_connection(("127.0.0.1", int(record["port"])), timeout=_STOP_S) as connection:
            client = "the agent's own command line"
            for request in (
                {"command": "hello", "schema": record["schema"], "secret": token, "client": client},
                {"command": command},
            ):
                frames.send(connection, dict(request))
                reply = frames.receive_header(connection, LIMITS.wire.header_bytes)
                if not reply.get("ok"):
                    error = frames.fields_of(reply, command).object("error")
                    raise AgentError(error.name("kind"), printable(error.text("message")))
            return reply
    except (OSError, ClosedError) as error:
        raise AgentError("internal", "the running agent does not answer: %s" % error) from error


def _start_detached(home: AgentFolder, python: str) -> Dict[str, Any]:
    command = [python, "-m", "device_agent", "serve", "--home", home.root, "--log", home.log]
    command += ["--python", python, "--idle-limit-s", "%g" % IDLE_LIMIT_S]
    # The user's SSH agent and its like are not for models.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SSH_")}
    with open(home.log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=os.path.dirname(CODE),
            env=environment,
            start_new_session=True,
        )
    assert process.stdout is not None
    with process.stdout:
        line = process.stdout.readline()
    if not line:
        raise AgentError(
            "internal",
            "the agent did not start (code %s): %s; its log is %s"
            % (process.wait(), _last_line(home.log), home.log),
        )
    process.returncode = 0  # it is nobody's child as soon as this command ends
    return _await_start(home)


def _user_unit() -> str:
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "systemd", "user", UNIT)


def _names(unit: str, home: AgentFolder) -> bool:
    """Whether a unit file is there and starts the agent of this folder."""
    try:
        with open(unit, encoding="utf-8") as file:
            return home.root.replace("%", "%%") in file.read()
    except OSError:
        return False


def _start_unit(home: AgentFolder) -> Dict[str, Any]:
    _systemctl("start")
    return _await_start(home, _START_S)


def _await_system_unit(home: AgentFolder) -> Dict[str, Any]:
    try:
        return _await_start(home, _RESTART_S)
    except AgentError as error:
        raise AgentError(
            "internal",
            "systemd has not started the agent; on the device type: sudo systemctl start %s" % UNIT,
        ) from error


def _systemctl(action: str) -> None:
    command = ["systemctl", "--user", action, UNIT]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=_START_S,
        )
        reason = done.stderr.decode("utf-8", "replace").strip() if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = str(error)
    if reason:
        text = "%s failed: %s; see: journalctl --user -u %s" % (" ".join(command), reason, UNIT)
        raise AgentError("internal", text)


def _await_start(home: AgentFolder, seconds: float = _START_S) -> Dict[str, Any]:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        record = home.running()
        if record is not None:
            return record
        time.sleep(0.05)
    raise AgentError("internal", "the agent did not start within %g s; its log is %s" % (seconds, home.log))


def _await_end(home: AgentFolder) -> None:
    until = time.monotonic() + _STOP_S
    while home.running() is not None:
        if time.monotonic() > until:
            raise AgentError(
                "internal", "the agent did not end within %g s; its log is %s" % (_STOP_S, home.log)
            )
        time.sleep(0.05)


def status_lines(home: AgentFolder) -> List[str]:
    """The lines of `device-agent status`."""
    record = home.running()
    if record is None:
        return ["not running", "folder: %s" % home.root]
    lines = [
        "running since %s, process %d, port %d on the loopback interface"
        % (record["started"], record["pid"], record["port"]),
        "folder: %s" % home.root,
    ]
    holder = ask(record, "device.holder")
    lines.append(printable(holder["text"]))
    return lines


def _last_line(path: str) -> str:
    with open(path, "rb") as file:
        lines = file.read()[-4096:].decode("utf-8", "replace").strip().splitlines()
    return printable(lines[-1]) if lines else "no reason given"
