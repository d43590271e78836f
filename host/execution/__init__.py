"""Runs jobs in this process or on the hosts of a Ray cluster, by one interface.

The kind of work does not matter here. Ray is imported only by commands that ask for a cluster.
"""

from host.execution.engine import TOKEN_FILE, Actor, Engine, HostLost, JobCrashed, Pending, read_token
from host.execution.local import LocalEngine
from host.execution.opening import open_engine

__all__ = [
    "TOKEN_FILE",
    "Actor",
    "Engine",
    "HostLost",
    "JobCrashed",
    "LocalEngine",
    "Pending",
    "open_engine",
    "read_token",
]
