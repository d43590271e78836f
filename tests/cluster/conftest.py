"""A cluster of two hosts, the head and another one, each of which reaches a simulated board."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.fleet.simulated_boards import slow_board
from tests.ray_cluster import RayCluster


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two boards of one kind, each out of a file of its own."""
    folder = tmp_path_factory.mktemp("boards")
    return slow_board(folder / "left.toml"), slow_board(folder / "right.toml")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, boards: tuple[str, str]) -> Iterator[RayCluster]:
    made = RayCluster(tmp_path_factory.mktemp("cluster"), [boards[:1], boards[1:]])
    yield made
    made.close()
