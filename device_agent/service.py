"""The agent as a service: started where none runs, told to stop, and asked how it is."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from typing import Any, Dict, List

from device_agent import wire
from device_agent.home import Home, locked
from device_agent.tickets import TicketBox
from device_agent.wire import AgentError, Header

UNIT = "edgetlm-agent.service"
CODE = os.path.dirname(os.path.realpath(__file__))
# Started by hand and used by nobody, it ends; the next ticket starts it again.
IDLE_LIMIT_S = 3600.0
_START_S = 60.0
_STOP_S = 20.0


def ticket(home: Home, python: str) -> Dict[str, Any]:
    """A ticket of the running agent, which is started if need be.

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
    token = TicketBox(os.path.join(record["folder"], "tickets")).issue()
    return {"port": record["port"], "token": token, "pid": record["pid"], "schema": record["schema"]}


def start(home: Home, python: str) -> Dict[str, Any]:
    """Starts the agent unless it runs; one that runs other code than this is replaced when nobody uses it.

    Returns:
        What its `agent.json` says.

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
        return _start_unit(home) if _has_unit(home) else _start_detached(home, python)


def stop(home: Home) -> bool:
    """Ends the agent with all its sessions; False where none runs.

    Raises:
        AgentError: it does not end.
    """
    record = home.running()
    if record is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(record["pid"]), signal.SIGTERM)
    _await_end(home)
    return True


def ask(record: Dict[str, Any], command: str) -> Header:
    """One request of the running agent, by a ticket of its own.

    Args:
        record: what `agent.json` says.
        command: without arguments.

    Raises:
        AgentError: the agent refuses, or does not answer.
    """
    token = TicketBox(os.path.join(record["folder"], "tickets")).issue()
    try:
        with socket.create_connection(("127.0.0.1", int(record["port"])), timeout=_STOP_S) as connection:
            client = "the agent's own command line"
            for request in (
                {"command": "hello", "schema": record["schema"], "secret": token, "client": client},
                {"command": command},
            ):
                wire.send(connection, dict(request))
                reply = wire.receive_header(connection)
                if not reply.get("ok"):
                    error = reply.get("error", {})
                    raise AgentError(str(error.get("kind")), str(error.get("message")))
            return reply
    except (OSError, wire.ClosedError) as error:
        raise AgentError("internal", "the running agent does not answer: %s" % error) from error


def _start_detached(home: Home, python: str) -> Dict[str, Any]:
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


def _has_unit(home: Home) -> bool:
    """Whether a unit of this user's systemd starts the agent of this folder."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    path = os.path.join(base, "systemd", "user", UNIT)
    try:
        with open(path, encoding="utf-8") as file:
            return home.root in file.read()
    except OSError:
        return False


def _start_unit(home: Home) -> Dict[str, Any]:
    command = ["systemctl", "--user", "start", UNIT]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_START_S, check=False
        )
        reason = done.stderr.decode("utf-8", "replace").strip() if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = str(error)
    if reason:
        raise AgentError(
            "internal", "%s failed: %s; see journalctl --user -u %s" % (" ".join(command), reason, UNIT)
        )
    return _await_start(home)


def _await_start(home: Home) -> Dict[str, Any]:
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        record = home.running()
        if record is not None:
            return record
        time.sleep(0.05)
    raise AgentError("internal", "the agent did not start within %g s; its log is %s" % (_START_S, home.log))


def _await_end(home: Home) -> None:
    until = time.monotonic() + _STOP_S
    while home.running() is not None:
        if time.monotonic() > until:
            raise AgentError(
                "internal", "the agent did not end within %g s; its log is %s" % (_STOP_S, home.log)
            )
        time.sleep(0.05)


def status_lines(home: Home) -> List[str]:
    """What `device-agent status` prints."""
    record = home.running()
    if record is None:
        return ["not running", "folder: %s" % home.root]
    lines = [
        "running since %s, process %d, port %d on the loopback interface"
        % (record["started"], record["pid"], record["port"]),
        "folder: %s" % home.root,
    ]
    holder = ask(record, "device.holder")
    lines.append(str(holder["text"]))
    return lines


def _last_line(path: str) -> str:
    with open(path, "rb") as file:
        lines = file.read()[-4096:].decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "no reason given"
