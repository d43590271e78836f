"""Boards that several sensors are tested on."""

from __future__ import annotations

import pytest

from tests.unit.device_agent.power import trees


@pytest.fixture
def rapl(tmp_path):
    trees.zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    trees.zone(tmp_path, "intel-rapl:0:0", "core", 400_000)
    trees.zone(tmp_path, "intel-rapl:1", "psys", 9_000_000)
    trees.zone(tmp_path, "intel-rapl-mmio:0", "package-0", 1_000_000)
    return tmp_path
