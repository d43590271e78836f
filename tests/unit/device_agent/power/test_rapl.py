"""Energy counters of x86 packages: which count, wraps, permissions."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from device_agent import power
from device_agent.power.sensors.rapl import Rapl
from tests.unit.device_agent.power import trees
from tests.unit.device_agent.power.trees import refuse


def test_only_packages_count(rapl):
    trees.zone(rapl, "intel-rapl:2", "package-1-die-0", 500_000)
    sensor = Rapl(str(rapl))
    assert sensor.probe() is None
    assert sensor.read() == [1_000_000, 500_000]
    assert sensor.describe()["rails"] == ["package-0", "package-1-die-0"]
    assert sensor.describe()["parts"] == ["core", "psys"]
    assert sensor.describe()["boundary"] == "package"


def test_amd_has_the_same_names_without_dram(tmp_path):
    trees.zone(tmp_path, "intel-rapl:0", "package-0", 7, 65532610987)
    trees.zone(tmp_path, "intel-rapl:0:0", "core", 3, 65532610987)
    sensor = power.choose(str(tmp_path))
    assert sensor.describe()["rails"] == ["package-0"] and sensor.read() == [7]


def test_joules_recover_one_wrap(rapl):
    sensor = Rapl(str(rapl))
    assert sensor.probe() is None
    assert sensor.joules([1_000_000], [3_500_000]) == pytest.approx(2.5)
    assert sensor.joules([262_143_000_000], [671_150]) == pytest.approx(1.0)


def test_rapl_without_permission_says_what_to_type(rapl, monkeypatch):
    refuse(monkeypatch, "energy_uj")
    sensor = power.choose(str(rapl))
    assert "no permission" in sensor.probe() and "CAP_DAC_READ_SEARCH" in sensor.probe()
    assert "sudo chmod a+r" in sensor.probe()
    assert sensor.describe()["source"] == "none"


def test_another_user_is_refused_for_real():
    """A child without root's rights meets the refusal of the kernel itself."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        counter = trees.zone(root, "intel-rapl:0", "package-0", 1_000_000) / "energy_uj"
        # Of root, as the kernel has it; where the tests are no root, of nobody.
        counter.chmod(0o400 if os.geteuid() == 0 else 0o000)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                if os.geteuid() == 0:
                    os.setgid(65534)
                    os.setuid(65534)
                os.write(writer, str(Rapl(folder).probe()).encode())
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            reason = pipe.read().decode()
        os.waitpid(child, 0)
    assert "no permission for" in reason and "energy_uj" in reason


def test_unreadable_content_is_a_reason_not_a_crash(rapl):
    trees.write(rapl, "sys/class/powercap/intel-rapl:0/energy_uj", "garbage")
    assert "cannot be read" in Rapl(str(rapl)).probe()
    trees.write(rapl, "sys/class/powercap/intel-rapl:0/max_energy_range_uj", "")
    assert "cannot be read" in Rapl(str(rapl)).probe()


def test_a_tree_without_packages_says_so(tmp_path):
    trees.zone(tmp_path, "intel-rapl:0", "psys", 1)
    assert "no package domain" in Rapl(str(tmp_path)).probe()
