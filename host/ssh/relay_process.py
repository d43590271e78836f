"""The process of `host.ssh.relay`: it forwards ports over an SSH connection of its own."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

from host.errors import EdgeError
from host.ssh.channel import Forwarder
from host.ssh.connection import SshConnection
from host.ssh.endpoint import Endpoint


def _endpoint(fields: dict[str, Any]) -> Endpoint:
    for name in ("identities", "known_hosts"):
        fields[name] = tuple(Path(path) for path in fields[name])
    return Endpoint(**{**fields, "jumps": tuple(fields["jumps"])})


def main() -> None:
    """Serve requests, one JSON line each, until standard input ends."""
    first = json.loads(sys.stdin.readline())
    ssh: SshConnection | None = None
    forwarders: list[Forwarder] = []
    try:
        for line in sys.stdin:
            port = int(json.loads(line)["port"])
            try:
                if ssh is None or not ssh.alive:
                    ssh = SshConnection(str(first["name"]), _endpoint(dict(first["endpoint"])))
                    ssh.request_nodelay()
                forwarders.append(Forwarder(functools.partial(ssh.dial, port)))
                answer: dict[str, Any] = {"port": forwarders[-1].port}
            except (EdgeError, OSError) as error:
                answer = {"error": str(error)}
            print(json.dumps(answer), flush=True)
    finally:
        for forwarder in forwarders:
            forwarder.close()
        if ssh is not None:
            ssh.close()


if __name__ == "__main__":
    main()
