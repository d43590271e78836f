"""What a worker is asked to do in the tests of its confinement."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from host.errors import ShapeError


def attempts(secret: str, inside: str) -> dict[str, str]:
    """What happens to each attempt: "done", or the name of the error."""

    def connect(family: int, address: Any) -> None:
        socket.socket(family).connect(address)

    def child() -> None:
        code = f"open({secret!r}).read()"
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)

    tried = {
        "read elsewhere": lambda: Path(secret).read_text(),
        "write elsewhere": lambda: Path(secret).write_text("changed"),
        "new file elsewhere": lambda: Path(secret).with_name("new").write_text("x"),
        "remove elsewhere": lambda: Path(secret).unlink(),
        "change rights": lambda: Path(secret).chmod(0o777),
        "list elsewhere": lambda: list(Path(secret).parent.iterdir()),
        "environment of the parent": lambda: Path(f"/proc/{os.getppid()}/environ").read_bytes(),
        "signal to the parent": lambda: os.kill(os.getppid(), 0),
        "tcp": lambda: connect(socket.AF_INET, ("127.0.0.1", 9)),
        "udp": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        "unix": lambda: connect(socket.AF_UNIX, "/run/x"),
        "leave the group": os.setsid,
        "child reads elsewhere": child,
        "read what was given": lambda: Path(inside).read_text(),
        "write what was given": lambda: Path(inside).write_text("changed"),
        "write in scratch": lambda: Path("mine").write_text("x"),
        "start a child": lambda: subprocess.run([sys.executable, "-c", ""], check=True),
    }
    found = {}
    for name, attempt in tried.items():
        try:
            attempt()
            found[name] = "done"
        except Exception as error:  # noqa: BLE001 - its name is the result
            found[name] = type(error).__name__
    return found


def surroundings() -> dict[str, Any]:
    """Where it works, and what it knows of the user."""
    return {"folder": str(Path.cwd()), "home": os.environ["HOME"], "names": sorted(os.environ)}


def allocate(size: int, pieces: int, seconds: float = 30.0) -> int:
    """Use memory, piece by piece, and keep it for so long."""
    held = [bytearray(os.urandom(1) * (size // pieces)) for _ in range(pieces)]
    time.sleep(seconds)
    return len(held)


def allocate_in_children(size: int, children: int) -> None:
    """The same, spread over processes."""
    # Without a copy, which a process alone may not have the memory for.
    code = f"import time; held = bytearray(b'x') * {size // children}; time.sleep(60)"
    for process in [subprocess.Popen([sys.executable, "-c", code]) for _ in range(children)]:
        process.wait()


def spin() -> None:
    """Compute without end, in a child."""
    subprocess.run([sys.executable, "-c", "while True: pass"], check=True)


def sleep() -> None:
    """Wait without end."""
    time.sleep(3600)


def crash() -> None:
    """End as a fault in native code does."""
    os.kill(os.getpid(), 11)


def leave() -> None:
    """End without an answer."""
    os._exit(3)


def fail(kind: str) -> None:
    """Raise an error."""
    raise {"shape": ShapeError("x\x1b[31m\nfits not"), "other": KeyError("\ud800"), "memory": MemoryError()}[
        kind
    ]


def unsayable() -> float:
    """An answer that no strict reader takes."""
    return float("nan")


def write_much(size: int) -> None:
    """A large file."""
    with Path("large").open("wb") as stream:
        stream.truncate(size)


def loaded() -> list[str]:
    """The names of the modules that are loaded."""
    return sorted(sys.modules)


def end_slowly() -> None:
    """Ends with a code, a while after the output was closed."""
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # it was closed meanwhile
            if str(entry.readlink()).startswith("pipe:"):
                os.close(int(entry.name))
    time.sleep(0.5)
    os._exit(3)


def say(size: int) -> str:
    """An answer of some size."""
    return "x" * size


def panic() -> None:
    """As a library in Rust does."""

    class PanicException(BaseException):
        pass

    raise PanicException("index out of bounds")
