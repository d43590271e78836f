"""A cluster of two hosts, the head and another one, each of which reaches a simulated board."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ray_cluster import RayCluster

EXAMPLE = Path(__file__).parents[2] / "examples" / "replay" / "small_board.toml"


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two boards of one kind, each out of a file of its own."""
    folder = tmp_path_factory.mktemp("boards")
    names = []
    for name in ("left", "right"):
        path = folder / f"{name}.toml"
        path.write_text(EXAMPLE.read_text())
        names.append(f"replay:{path}")
    return names[0], names[1]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, boards: tuple[str, str]) -> Iterator[RayCluster]:
    made = RayCluster(tmp_path_factory.mktemp("cluster"), [boards[:1], boards[1:]])
    yield made
    made.close()
