"""The command that makes a machine a host of a cluster, and what it finds in its environment."""

from __future__ import annotations

import json
from collections.abc import Sequence

from host.execution.cores import BOARD_CORES
from host.execution.engine import PROCESSES
from host.options.engine import BOARD

# How often a process asks a head for what it does not have yet, a second each time.
RETRIES = "RAY_NUM_REDIS_GET_RETRIES"


def start_command(
    python: str,
    boards: Sequence[str],
    cores: int | None = None,
    head: str = "",
    port: int = 0,
    address: str = "",
    store_bytes: int | None = None,
    temporary: str = "",
) -> list[str]:
    """The command that starts a host; it runs until it is ended, and ends what it started.

    Args:
        python: the interpreter, with Ray and this package.
        boards: that the host reaches.
        cores: for builds; all but those of the boards if None.
        head: HOST:PORT of the cluster's head; "" starts one.
        port: of a head.
        address: by which the other hosts reach this one; "" lets Ray find one.
        store_bytes: memory for what is sent between hosts; a third of the machine's if None.
        temporary: folder of this host alone for its sockets and logs; "" takes Ray's, where the names of
            sockets are counted: of two hosts of a machine that start at the same moment one ends at once, and
            its start takes four minutes to see it.
    """
    command = [python, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
    command += [f"--address={head}"] if head else ["--head", f"--port={port}", "--include-dashboard=false"]
    command += [f"--node-ip-address={address}"] if address else []
    command += [f"--num-cpus={cores}"] if cores is not None else []
    command += [f"--object-store-memory={store_bytes}"] if store_bytes is not None else []
    command += [f"--temp-dir={temporary}"] if temporary else []
    command += ["--resources", json.dumps({BOARD + name: 1 for name in boards})]
    # Nobody reads what it would collect, nor is there a machine to be rented: each is a process of 100 MB.
    command += ["--include-log-monitor=false", *([] if head else ["--no-monitor"])]
    # Ports that the system has free, so that several hosts may be on one machine.
    return [*command, "--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0"]


def start_environment(token: str, board_cores: int = 1) -> dict[str, str]:
    """The variables that a host's process has in its environment besides the usual ones.

    Args:
        token: the secret of the cluster.
        board_cores: cores that builds leave to the boards of the host.
    """
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": token,
        "RAY_USAGE_STATS_ENABLED": "0",
        # A machine that does much other work takes minutes, also for what a host itself waits for.
        "RAY_raylet_start_wait_time_s": "240",
        "RAY_agent_register_timeout_ms": "240000",
        # A host may be started before its head listens, and before that is a host itself.
        "RAY_gcs_server_port_wait_time_s": "120",
        RETRIES: "120",
        **PROCESSES,
        BOARD_CORES: str(board_cores),
    }
