"""Tickets, trusted keys, status lines, devices and boards: in their right form, and harmful ones."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import targets
from tests.fuzz.case import Case
from tests.fuzz.mutate import COMMAND, TEXTS

TRUSTED = {
    "schema": "edgetlm.trust/1",
    "keys": [
        {"key": "ab" * 32, "name": "alice@laptop", "since": "2026-11-22"},
        {"key": "cd" * 32, "name": "bob@desk", "since": "2026-11-21"},
    ],
    "revoked": [{"identity": "ef" * 32, "name": "eve", "since": "2026-11-20"}],
}
ANNOUNCED = ({"port": 5555}, {"error": {"kind": "engine", "message": "there is no such engine"}})
STATUS = (b"B frames 60.0", b"I frames", b"B rpc 0", b"I rpc", b"B frames 1e3")
DEVICES = {
    "devices": {
        "pi": {
            "kind": "ssh",
            "host": "192.168.1.7",
            "user": "pi",
            "port": 22,
            "tags": ["lab"],
            "board": "rpi5",
        },
        "far": {"kind": "ssh", "host": "board.local", "options": {"identity": "/home/a/.ssh/id"}},
        "box": {"kind": "emulated", "options": {"machine": "riscv64"}},
    }
}
_FILES = {"boards": "raspberry_pi_5", "cores": "cortex_a76"}


@functools.cache
def board(kind: str) -> str:
    """The text of a file of the product's own, of "boards" or "cores"."""
    return (Path(targets.__file__).parent / kind / f"{_FILES[kind]}.toml").read_text()


@functools.cache
def cases() -> list[Case]:
    """One a fault."""
    said = {
        "number": b'{"port": 5}\nB x\n',
        "empty": b'{"port": 5}\n\nB x\n',
        "nan": b'{"port": 5}\nB frames nan\n',
        "huge": b'{"port": 5}\nB frames 1e999\n',
        "not-utf-8": b'{"port": 5}\n\xff\xfe\n',
        "long": b'{"port": 5}\n' + b"x" * 100_000,
        "port": b'{"port": 99999}\n',
        "deep": b"[" * 100_000 + b"\n",
        "error": b'{"error": 5}\n',
        "escape": b'{"error": {"kind": "x", "message": "\\u001b]0;PWNED\\u0007"}}\n',
        "digits": b'{"port": ' + b"9" * 5000 + b"}\n",
    }
    found = [Case(f"status-{name}", {"status": text}) for name, text in said.items()]
    for number, text in enumerate(TEXTS):
        data = text.encode("utf-8", "surrogatepass")
        found.append(Case(f"token-{number}", {"token": data}))
    hosts = (
        "-oProxyCommand=" + COMMAND,
        "h;" + COMMAND,
        f"$({COMMAND})",
        "h\n",
        "h x",
        "[::1%eth0;id]",
        "../x",
        "x" * 5000,
    )
    for number, host in enumerate(hosts):
        lines = f'[devices.ok]\nkind = "ssh"\nhost = {json.dumps(host)}\n'
        found.append(Case(f"devices-host-{number}", {"devices": lines.encode()}))
        lines = f'[devices.ok]\nkind = "ssh"\nhost = "h"\nuser = {json.dumps(host)}\n'
        found.append(Case(f"devices-user-{number}", {"devices": lines.encode()}))
    for kind, text in {
        "deep": b"x = " + b"[" * 100_000,
        "tables": b"[" + b"a." * 50_000 + b"a]",
        "not-utf-8": b"\xff\xfe",
        "table": b"devices = 5",
        "number": b"x = " + b"9" * 5000,
    }.items():
        found += [Case(f"{reader}-{kind}", {reader: text}) for reader in ("devices", "board", "core")]
    return [*found, *(Case(f"{kind}-deep", {kind: b"[" * 100_000}) for kind in ("ticket", "trust"))]
