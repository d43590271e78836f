"""Commands under observation: what they look up, where they connect to, and what they leave in a fresh home.

`Namespace` runs them where there is a loopback interface, no route, and a resolver that counts the questions
and knows no name; the kernel itself counts what it had no route for. `Traced` follows their system calls with
strace, for kernels that give a user no namespaces; the network is the real one there.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TIME_LIMIT_S = 240
_RESOLVER = ("127.0.0.1", 53)
_NO_SUCH_NAME = 0x8183
_IFF_UP = 0x1
_GET_FLAGS, _SET_FLAGS = 0x8913, 0x8914
_ADDRESS = re.compile(r'sin6?_port=htons\((\d+)\).*?(?:inet_addr\(|inet_pton\(AF_INET6, )"([^"]+)"')


@dataclass(frozen=True)
class Seen:
    """What a command did.

    Attributes:
        returncode: its exit status.
        output: what it printed.
        lookups: names that it asked for, or where it sent the question.
        outside: how often it tried to reach an address that is not this machine's, or which.
    """

    returncode: int
    output: str
    lookups: tuple[str, ...]
    outside: tuple[str, ...]


class Namespace:
    """A network namespace of its own for each command."""

    name = "namespace"

    @staticmethod
    def refused() -> str | None:
        """Why the kernel gives none, None if it does."""
        done = subprocess.run([*_unshare(), "true"], capture_output=True, text=True)
        return None if done.returncode == 0 else f"no network namespace: {done.stderr.strip()}"

    def watch(self, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> Seen:
        """Run a command to its end."""
        report = folder / "report.json"
        # By its path: the tests' package silences its process, and what is watched is to do that itself.
        inside = [sys.executable, __file__, str(report), *command]
        done = _run([*_unshare(), *inside], environment)
        assert report.is_file(), done.stdout
        found = json.loads(report.read_text())
        outside = ("no route",) * found["unroutable"]
        return Seen(found["returncode"], done.stdout, tuple(found["lookups"]), outside)


class Traced:
    """System calls of a command and of all that it starts."""

    name = "strace"

    @staticmethod
    def refused() -> str | None:
        """Why the kernel lets nobody trace, None if it does."""
        done = subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"], capture_output=True, text=True)
        return None if done.returncode == 0 else f"no tracing: {done.stderr.strip()}"

    def watch(self, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> Seen:
        """Run a command to its end."""
        trace = folder / "trace"
        calls = ["strace", "-f", "-qq", "--seccomp-bpf", "-o", str(trace)]
        calls += ["-e", "trace=connect,sendto,sendmsg,sendmmsg"]
        done = _run([*calls, *command], environment)
        reached = _ADDRESS.findall(trace.read_text(errors="replace"))
        lookups = [f"{address}:{port}" for port, address in reached if port == "53"]
        outside = [f"{address}:{port}" for port, address in reached if not _is_loopback(address)]
        return Seen(done.returncode, done.stdout, tuple(lookups), tuple(outside))


def observer() -> tuple[Namespace | Traced | None, str]:
    """The best observer that this kernel permits, and why not a better one."""
    reason = Namespace.refused()
    if reason is None:
        return Namespace(), ""
    other = Traced.refused()
    return (Traced(), reason) if other is None else (None, f"{reason}; {other}")


def _unshare() -> list[str]:
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, "--net", "--mount", "--propagation", "private", "--"]


def _run(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(command),
        cwd=ROOT,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIME_LIMIT_S,
    )


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address in ("::1", "0.0.0.0", "::")


def _inside(report: Path, command: Sequence[str]) -> None:
    """Within the namespace: run the command beside the resolver, and write what was seen."""
    _loopback_up()
    resolver = report.with_name("resolv.conf")
    resolver.write_text(f"nameserver {_RESOLVER[0]}\noptions timeout:1 attempts:1\n")
    if Path("/etc/resolv.conf").exists():
        subprocess.run(["mount", "--bind", str(resolver), os.path.realpath("/etc/resolv.conf")], check=True)
    lookups: list[str] = []
    sockets = [socket.socket(socket.AF_INET, kind) for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM)]
    for one in sockets:
        one.bind(_RESOLVER)
    threading.Thread(target=_answer, args=(sockets[0], lookups), daemon=True).start()
    before = _unroutable()
    done = subprocess.run(command)
    found = {"returncode": done.returncode, "lookups": lookups, "unroutable": _unroutable() - before}
    report.write_text(json.dumps(found))


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, _GET_FLAGS, request))[1]
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def _answer(server: socket.socket, lookups: list[str]) -> None:
    """Note each question (RFC 1035, 4.1) and answer that there is no such name."""
    while True:
        question, client = server.recvfrom(4096)
        labels, at = [], 12
        while question[at]:
            labels.append(question[at + 1 : at + 1 + question[at]].decode("ascii", "replace"))
            at += question[at] + 1
        lookups.append(".".join(labels))
        header = question[:2] + struct.pack(">HHHHH", _NO_SUCH_NAME, 1, 0, 0, 0)
        with suppress(OSError):
            server.sendto(header + question[12 : at + 5], client)


def _unroutable() -> int:
    """What the kernel refused for want of a route, in this namespace."""
    names, values = [
        line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if line.startswith("Ip:")
    ]
    total = int(dict(zip(names, values, strict=True))["OutNoRoutes"])
    for line in Path("/proc/net/snmp6").read_text().splitlines():
        if line.startswith("Ip6OutNoRoutes"):
            total += int(line.split()[1])
    return total


if __name__ == "__main__":
    _inside(Path(sys.argv[1]), sys.argv[2:])
