"""A running agent and its executor, to which strangers and clients send what is no request."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

from device_agent.contract.strict_json import parse
from device_agent.wire import frames
from host.errors import DeviceError
from host.transport.wire import Connection, DisconnectedError
from tests.fuzz.case import Case, Outcome, Tree, canaries, complaint
from tests.fuzz.corpus import frames as found
from tests.fuzz.mutate import grown, mangled, written

_ROOT = Path(__file__).resolve().parents[3]
_TOKEN = "t" * 40
_PATIENCE_S = 30.0
# Whether somebody else is served is looked at after so many cases.
_HONEST = 20
# These end the agent, or start a process each, for a client who may do so.
_MEANT = ("shutdown", "retire", "session.open")
_REQUESTS: tuple[dict[str, Any], ...] = (
    {"command": "describe"},
    {"command": "file.has", "sha256": "0" * 64},
    {"command": "file.put", "sha256": "0" * 64, "blob_bytes": 4},
    {"command": "bundle.install", "name": "m", "files": {"manifest.json": "0" * 64}},
    {"command": "bundle.activate", "name": "m", "version": "0" * 64},
    {"command": "bundle.rollback", "name": "../../m"},
    {"command": "bundle.path", "name": "m"},
    {"command": "session.place", "session": "s", "folder": "../x", "files": {"../y": "0" * 64}},
    {"command": "session.status", "session": "s", "wait_s": 0.0},
    {"command": "modes.set", "mode": "no such mode"},
    {"command": "device.replace", "identity": "nobody"},
    {"command": "state"},
)  # fmt: skip
_OF_EXECUTORS: tuple[dict[str, Any], ...] = (
    *found.HEADERS["frame"],
    {"command": "load", "path": "/dev/zero"},
)


class Live:
    """The target: the first file's name says to whom it goes, and whether after a first request."""

    name = "live"
    apart = False

    def open(self, place: Path) -> None:
        """An agent with a session."""
        home = place / "home"
        (home / "store").mkdir(parents=True, mode=0o700)
        (place / "token").write_text(_TOKEN)
        command = [sys.executable, "-m", "device_agent", "serve", "--token-file", str(place / "token")]
        command += ["--store", str(home / "store"), "--parent-pid", str(os.getpid())]
        environment = {**os.environ, "HOME": str(home), "TVM_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        with (place / "log").open("wb") as log:
            self._agent = subprocess.Popen(
                command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=log, env=environment
            )
        assert self._agent.stdout is not None
        self._ports = {"agent": int(json.loads(self._agent.stdout.readline())["port"])}
        self._owner = Connection(self._ports["agent"], _TOKEN, "agent")
        request = {"command": "session.open", "engine": "tvm", "threads": 1, "time_limit_s": 60}
        self._session, _ = self._owner.request(request)
        self._ports["executor"] = int(self._session["port"])
        self._secrets = {"agent": _TOKEN, "executor": str(self._session["key"])}
        (place / "outside").mkdir()
        self._place, self._tree = place, Tree(place / "outside")
        self._measure_entrant = 0

    def close(self) -> None:
        """End the agent, which ends its session."""
        self._owner.close()
        self._agent.terminate()
        self._agent.communicate(timeout=_PATIENCE_S)

    def corpus(self) -> list[Case]:
        """Everything that was a fault once."""
        return [
            Case(f"{peer}-{kind}-{case.name}", {f"{peer}-{kind}": case.main})
            for peer in ("agent", "executor")
            for kind, of in (("stranger", "hello"), ("client", "frame"))
            for case in found.cases()
            if case.name.startswith(f"{of}-")
        ]

    def case(self, seed: int) -> Case:
        """What a stranger or a client sends, until it says no more."""
        rng = Random(f"live/{seed}")
        peer, kind = rng.choice(("agent", "executor")), rng.choice(("stranger", "client", "client"))
        if kind == "stranger":
            said = [_frame(rng, found.HEADERS["hello"][0])]
        else:
            known = _REQUESTS if peer == "agent" else _OF_EXECUTORS
            said = [_frame(rng, rng.choice(known)) for _ in range(rng.choice((1, 1, 2, 5)))]
        return Case(f"{peer}-{kind}-{seed}", {f"{peer}-{kind}": b"".join(said)})

    def run(self, case: Case) -> Outcome:
        """Send it; what is answered are frames, and somebody else is served as before."""
        (name,) = case.files
        peer, _, kind = name.partition("-")
        said = case.main
        if any(f'"{word}"'.encode() in said for word in _MEANT):
            return Outcome("left out")
        hello = {"command": "hello", "schema": frames.SCHEMA, "secret": self._secrets[peer]}
        answered = _talk(self._ports[peer], (frames.frame(hello) if kind == "client" else b"") + said)
        wrong = _answers(answered)
        self._measure_entrant += 1
        if not wrong and (self._measure_entrant % _HONEST == 0 or not case.name.rpartition("-")[2].isdigit()):
            wrong = self._served()
        wrong = wrong or self._tree.violation() or canaries(self._place)
        return Outcome("refused" if b'"ok": false' in answered else "answered", violation=wrong)

    def _served(self) -> str:
        """Whether the agent lives, lets somebody in, and has its session."""
        try:
            with_agent = Connection(self._ports["agent"], _TOKEN, "agent")
            with_agent.request({"command": "describe"})
            with_agent.close()
            request = {"command": "session.status", "session": self._session["session"]}
            if not self._owner.request(request)[0]["alive"]:
                return "the session's executor has ended"
            executor = Connection(self._ports["executor"], self._secrets["executor"], "executor")
            executor.close()
        except (DeviceError, DisconnectedError) as error:
            return f"somebody else is not served: {error}"
        return ""


def _frame(rng: Random, fields: dict[str, Any]) -> bytes:
    text = written(rng, grown(rng, fields))
    length = len(text)
    if rng.random() < 0.05:
        length = rng.choice((0, 1, length - 1, length + 1, 1 << 20, (1 << 20) + 1, 1 << 30))
    made = struct.pack(">I", max(0, length)) + text
    return mangled(rng, made) if rng.random() < 0.1 else made


def _talk(port: int, said: bytes) -> bytes:
    """Everything that is answered, until the other end closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_S) as connection:
        answered = b""
        try:
            connection.sendall(said)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(1 << 16):
                answered += part
        except (ConnectionResetError, BrokenPipeError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
        return answered


def _answers(data: bytes) -> str:
    """What is wrong with answers; "" where they are frames, and none tells of an error of the agent's own."""
    while data:
        length = int.from_bytes(data[:4], "big")
        text, data = data[4 : 4 + length], data[4 + length :]
        if len(text) < length:
            return ""  # the connection was reset in its midst
        try:
            header = parse(text, length, "an answer")
        except ValueError as error:
            return f"an answer that is none: {error}"
        data = data[int(header.get("blob_bytes", 0)) :]
        if not header["ok"]:
            error = header["error"]
            if error["kind"] == "internal":
                return f"an error of the agent's own: {error['message']}"
            if wrong := complaint(error["message"]):
                return wrong
    return ""
