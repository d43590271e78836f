"""Console script `device-agent`: `device-agent serve --token-file FILE --store DIR`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import List, Optional

from device_agent.daemon import Daemon
from device_agent.wire import AgentError


def _default_store() -> str:
    base = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return os.path.join(base, "edgetlm", "device")


def main(arguments: Optional[List[str]] = None) -> int:
    """Runs the daemon; prints one JSON line with its port on stdout.

    Returns:
        0 after an orderly end, 1 where it cannot serve, 2 for a wrong command.
    """
    parser = argparse.ArgumentParser(
        prog="device-agent", description="Runs and measures models on this device."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="serve hosts on the loopback interface")
    serve.add_argument("--port", type=int, default=0, help="port to listen on, 0 for any")
    serve.add_argument("--token-file", required=True, help="file with the secret that hosts have to know")
    serve.add_argument("--store", default=_default_store(), help="folder of bundles and uploads")
    serve.add_argument("--parent-pid", type=int, default=0, help="end when this process has ended")
    serve.add_argument("--system-root", default="/", help="prefix of /proc and /sys, for tests")
    options = parser.parse_args(arguments)
    try:
        with open(options.token_file, encoding="ascii") as file:
            token = file.read().strip()
        if not token:
            raise AgentError("bad_request", "%s holds no token" % options.token_file)
        store = os.path.abspath(options.store)
        daemon = Daemon(
            store,
            token,
            system_root=options.system_root,
            port=options.port,
            parent_pid=options.parent_pid,
        )
    except (OSError, AgentError) as error:
        print("device-agent: %s" % error, file=sys.stderr)
        return 1
    print(json.dumps({"port": daemon.port}), flush=True)
    daemon.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
