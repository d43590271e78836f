"""The hosts of a Ray cluster, as a project file describes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from host.cluster.description import ClusterDescription, read_cluster
from host.errors import UserError

if TYPE_CHECKING:
    from host.cluster.hosts import HostState

_NAME = "edgetlm.toml"


def up(file: Path | None = None) -> tuple[HostState, ...]:
    """Start every host that does not run; see `host.cluster.hosts.up`.

    Args:
        file: with the description; the edgetlm.toml of the working folder if None.

    Raises:
        UserError: it describes no cluster, or one that cannot be.
        EdgeError: the secret of the cluster cannot be kept.
    """
    from host.cluster import hosts

    return hosts.up(_described(file))


def down(file: Path | None = None) -> tuple[HostState, ...]:
    """End every host; see `up`."""
    from host.cluster import hosts

    return hosts.down(_described(file))


def status(file: Path | None = None) -> tuple[HostState, ...]:
    """Whether each host runs; see `up`."""
    from host.cluster import hosts

    return hosts.status(_described(file))


def head(file: Path | None = None) -> str:
    """HOST:PORT of the head; see `up`."""
    return _described(file).head


def _described(file: Path | None) -> ClusterDescription:
    # Commands are started on other machines: the user may not have looked at a file of a folder above.
    path = file or Path(_NAME)
    if not path.is_file():
        raise UserError(f"{path}: there is no such file; describe the cluster there (docs/scale.md)")
    return read_cluster(path)
