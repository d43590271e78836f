"""Orders to a bare board over SSH: a script for its own Python, sent as text; nothing need be installed."""

from __future__ import annotations

import functools
import json
import shlex
from importlib import resources
from typing import Any

from device_agent.contract import strict_json
from device_agent.contract.limits import LIMITS
from device_agent.contract.text import printable
from host.errors import DeviceError, DeviceFull
from host.ssh import Completed, SshConnection

# Boards of an older system have a newer Python beside their own (python3.8 of Ubuntu 18.04).
_PYTHONS = "python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 python3.8"
_NO_PYTHON = 96
_FIND_PYTHON = (
    f'for p in {_PYTHONS}; do if command -v "$p" >/dev/null 2>&1 &&'
    ' "$p" -c "import sys; sys.exit(sys.version_info < (3, 8))" 2>/dev/null; then exec "$p" - "$@"; fi; done;'
    f' if command -v python3 >/dev/null 2>&1; then exec python3 - "$@"; fi; exit {_NO_PYTHON}'
)
ORDER_S = 120.0


def shell(script: str, *arguments: str) -> str:
    """A command line for any login shell that has sh run a script."""
    return shlex.join(["sh", "-c", script, "sh", *arguments])


def order(ssh: SshConnection, do: str, timeout_s: float = ORDER_S, **arguments: Any) -> dict[str, Any]:
    """Run one command of `host.devices.on_board` on the board, and return its answer.

    Raises:
        DeviceFull: it has no space for it.
        DeviceError: it cannot, or the connection was cut.
    """
    text = json.dumps({"do": do, **arguments})
    done = ssh.run(shell(_FIND_PYTHON, text), stdin=_script(), timeout_s=timeout_s)
    if done.code == _NO_PYTHON:
        raise DeviceError(
            f"{ssh.name}: the board has no Python 3, which its agent needs; install it there:"
            " sudo apt-get install python3"
        )
    answer = _answer(ssh, do, done)
    error = answer.get("error")
    if error is None:
        return answer
    # Any other answer of a board here has no usable content.
    fields = error if isinstance(error, dict) else {}
    kind, message = (
        str(fields.get("kind", "")),
        printable(fields.get("message") or "it cannot, and gives no reason"),
    )
    if kind == "python":
        raise DeviceError(
            f"{ssh.name}: the board's Python is {message}, the agent needs 3.8 or newer; install one"
            " beside it:"
            " sudo apt-get install python3.8"
        )
    if kind == "device_full":
        raise DeviceFull(
            f"{ssh.name}: no space left on the board ({message}); free some there (df -h ~) and run the same"
            " command again"
        )
    raise DeviceError(f"{ssh.name}: {message}")


def _answer(ssh: SshConnection, do: str, done: Completed) -> dict[str, Any]:
    lines = done.stdout.strip().splitlines()
    try:
        # A login script may have greeted before.
        answer = strict_json.parse(lines[-1], LIMITS.ssh.stdout_bytes, "its answer")
        if not isinstance(answer, dict):
            raise ValueError("its answer is no object")
        return answer
    except (IndexError, ValueError) as error:
        raise DeviceError(
            f"{ssh.name}: the board cannot carry out {do!r} ({done.error_line()}); see whether"
            f" `ssh {ssh.endpoint.address} python3 --version` works"
        ) from error


@functools.lru_cache(maxsize=1)
def _script() -> bytes:
    return (resources.files("host.devices") / "on_board.py").read_bytes()
