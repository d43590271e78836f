"""What is recorded of a board takes its place: sensors answer on the unpacked recording as they did there."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile

import pytest

from device_agent import power
from device_agent.__main__ import main
from device_agent.board.machine import Machine
from device_agent.power import recording
from tests.unit.device_agent.power import trees


def recorded(tmp_path, root):
    """A recording of a tree, made by the command and unpacked elsewhere."""
    archive = tmp_path / "board.tar"
    mask = os.umask(0o022)
    try:
        assert main(["record-sensors", str(archive), "--seconds", "0.25", "--system-root", str(root)]) == 0
    finally:
        # The command narrows it for its process, which is the tests' here.
        os.umask(mask)
    return recording.unpack(str(archive), str(tmp_path / "unpacked"))


@pytest.mark.parametrize("make", [trees.orin_nano, trees.agx_orin, trees.nano, trees.thor, trees.energy_chip])
def test_a_recorded_board_has_its_sensor(tmp_path, make):
    root = tmp_path / "board"
    make(root)
    trees.write(root, "proc/device-tree/model", "A board of the test")
    trees.write(root, "proc/device-tree/serial-number", "1421720000123")
    trees.write(root, "sys/class/thermal/thermal_zone0/type", "cpu-thermal")
    trees.write(root, "sys/class/thermal/thermal_zone0/temp", 51_500)
    found = recorded(tmp_path, root)
    there, here = power.choose(str(root)), power.choose(found.root)
    assert here.probe() is None and here.describe() == there.describe()
    assert here.read() == there.read()
    assert Machine(found.root).hottest_c() == 51.5
    assert found.about["model"] == "A board of the test"
    # Nothing that names the unit or its owner.
    contents = b"".join(file.read_bytes() for file in (tmp_path / "unpacked").rglob("*") if file.is_file())
    assert b"1421720000123" not in contents
    assert len(found.series) >= 2 and found.series[0][0] < found.series[-1][0]
    assert found.series[-1][1]["sys/class/thermal/thermal_zone0/temp"] == 51_500


def test_what_programs_said_is_said_again(tmp_path):
    root = tmp_path / "board"
    trees.pi5(root, throttled="0x50000")
    trees.program(root, "nvpmodel", "echo 'NV Power Mode: MODE_15W'; echo 2")
    found = recorded(tmp_path, root)
    sensor = power.choose(found.root)
    assert sensor.describe()["source"] == "rpi5_pmic"
    assert sensor.read() == pytest.approx(10.800, abs=5e-4)
    assert Machine(found.root).state()["throttle"] == {"get_throttled": 0x50000}
    said = subprocess.run(
        [f"{found.root}/usr/bin/nvpmodel", "-q"], capture_output=True, text=True, check=True
    )
    assert said.stdout.startswith("NV Power Mode: MODE_15W\n2")
    unknown = subprocess.run([f"{found.root}/usr/bin/vcgencmd", "codec_enabled"], capture_output=True)
    assert unknown.returncode == 255


def test_a_program_that_failed_fails_again(tmp_path):
    root = tmp_path / "board"
    trees.program(root, "vcgencmd", "echo 'VCHI initialization failed'; exit 255")
    found = recorded(tmp_path, root)
    assert "VCHI initialization failed" in power.choose(found.root).probe()


def test_what_could_not_be_read_is_told(tmp_path, monkeypatch):
    root = tmp_path / "board"
    trees.zone(root, "intel-rapl:0", "package-0", 5)
    real = open

    def guarded(path, *arguments, **options):
        if str(path) == f"{root}/sys/class/powercap/intel-rapl:0/energy_uj":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr("builtins.open", guarded)
    found = recorded(tmp_path, root)
    assert found.about["unreadable"] == {"sys/class/powercap/intel-rapl:0/energy_uj": "Permission denied"}
    file = tmp_path / "unpacked/sys/class/powercap/intel-rapl:0/energy_uj"
    assert file.stat().st_mode & 0o777 == 0


def test_a_machine_without_sensors_can_be_recorded_too(tmp_path):
    (tmp_path / "bare").mkdir()
    found = recorded(tmp_path, tmp_path / "bare")
    assert found.about["answers"] == {} and "no power sensor" in power.choose(found.root).probe()


def test_an_archive_that_leaves_its_folder_is_refused(tmp_path):
    archive = tmp_path / "evil.tar"
    with tarfile.open(archive, "w") as tar:
        member = tarfile.TarInfo("../outside")
        member.size = 1
        tar.addfile(member, io.BytesIO(b"x"))
    with pytest.raises(ValueError, match="no recording"):
        recording.unpack(str(archive), str(tmp_path / "inside"))
    assert not (tmp_path / "outside").exists()
    with tarfile.open(archive, "w") as tar:
        member = tarfile.TarInfo("file")
        tar.addfile(member, io.BytesIO(b""))
    with pytest.raises(ValueError, match="is no recording of sensors"):
        recording.unpack(str(archive), str(tmp_path / "inside"))


def test_the_command_says_why_it_cannot_write(tmp_path):
    command = [sys.executable, "-m", "device_agent", "record-sensors", str(tmp_path / "no/such/out.tar")]
    result = subprocess.run([*command, "--seconds", "0"], capture_output=True, text=True)
    assert result.returncode == 1 and result.stderr.startswith("device-agent: ")
    assert "Traceback" not in result.stderr
