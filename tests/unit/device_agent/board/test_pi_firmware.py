"""The mailbox of a Raspberry Pi by a firmware of the test's own (wiki "Mailbox property interface")."""

from __future__ import annotations

import os

import pytest

from device_agent.board import throttle
from device_agent.board.pi_firmware import PiFirmware
from device_agent.board.throttle import Throttle
from device_agent.power.sensors import rpi5_pmic
from tests.unit.device_agent.power import trees


class Firmware:
    """Answers a property request as the firmware does, or refuses."""

    def __init__(self, flags=None, refuses=None, **listings):
        self.flags = flags
        self.listings = listings
        self.refuses = refuses
        self.asked = 0

    def __call__(self, descriptor, request, words, mutable):
        self.asked += 1
        if self.refuses:
            raise OSError(self.refuses, os.strerror(self.refuses))
        assert request == 0xC0086400 and mutable and words[0] == 4 * len(words)
        if words[2] == 0x30080:
            return self.command(words)
        assert list(words) == [28, 0, 0x30046, 4, 0, 0, 0]
        if self.flags is not None:
            words[1], words[4], words[5] = 0x80000000, 0x80000004, self.flags
        return 0

    def command(self, words):
        """As vcgencmd asks: 1,024 bytes of text behind a word for an error."""
        assert list(words[:6]) == [4 * 263, 0, 0x30080, 1024, 0, 0] and words[-1] == 0
        question = words[6:-1].tobytes().rstrip(b"\0").decode()
        if question in self.listings:
            answer = self.listings[question].encode().ljust(1024, b"\0")
            for index in range(256):
                words[6 + index] = int.from_bytes(answer[4 * index : 4 * index + 4], "little")
        else:
            words[5] = 1
        words[1], words[4] = 0x80000000, 0x80000000 | 1024
        return 0


@pytest.fixture
def root(tmp_path):
    """A system root with a device where the mailbox is."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/vcio").symlink_to("/dev/null")
    return tmp_path


def test_flags_come_without_a_program(root):
    firmware = Firmware(flags=0x50005)
    pi = PiFirmware(str(root), firmware)
    assert pi.throttled() == 0x50005 and pi.throttled() == 0x50005
    assert firmware.asked == 2


@pytest.mark.parametrize("firmware", [Firmware(), Firmware(refuses=25), Firmware(refuses=13)])
def test_a_mailbox_that_does_not_answer_is_asked_once(root, firmware):
    pi = PiFirmware(str(root), firmware)
    assert pi.throttled() is None and pi.throttled() is None
    assert firmware.asked == 1


def test_without_a_mailbox_vcgencmd_is_asked(tmp_path):
    trees.write(tmp_path, "dev/vcio", "no device")
    assert PiFirmware(str(tmp_path)).throttled() is None
    trees.pi5(tmp_path, throttled="0x4")
    assert Throttle(str(tmp_path)).flags() == {"get_throttled": 4}


def test_the_real_kernel_refuses_what_is_no_mailbox(root):
    assert PiFirmware(str(root)).throttled() is None


def test_commands_are_answered_as_the_program_does(root):
    pi = PiFirmware(str(root), Firmware(pmic_read_adc=trees.PMIC))
    assert pi.output("pmic_read_adc") == trees.PMIC
    assert pi.output("sing") is None
    assert pi.output("pmic_read_adc") == trees.PMIC


def unplug(root):
    """From here on the program fails."""
    trees.program(root, "vcgencmd", "exit 1")


def through(monkeypatch, firmware):
    """Every mailbox of the agent asks this firmware."""
    for module in (throttle, rpi5_pmic):
        monkeypatch.setattr(module, "PiFirmware", lambda root: PiFirmware(root, firmware))


def test_the_power_chip_is_read_without_a_program_once_both_agree(root, monkeypatch):
    trees.pi5(root)
    through(monkeypatch, Firmware(pmic_read_adc=trees.PMIC))
    sensor = rpi5_pmic.Rpi5Pmic(str(root))
    assert sensor.probe() is None
    unplug(root)
    assert sensor.read() == pytest.approx(10.800, abs=5e-4)


@pytest.mark.parametrize("listing", ["", "VDD_CORE_A current(7)=1.0A\nVDD_CORE_V volt(15)=1.0V", "what"])
def test_a_mailbox_that_lists_other_rails_is_not_believed(root, monkeypatch, listing):
    trees.pi5(root)
    through(monkeypatch, Firmware(pmic_read_adc=listing))
    sensor = rpi5_pmic.Rpi5Pmic(str(root))
    assert sensor.probe() is None
    assert sensor.read() == pytest.approx(10.800, abs=5e-4)


@pytest.mark.parametrize(("said", "flags"), [(0x50000, 0x50000), (0x1, 0x50000)])
def test_flags_are_believed_once_both_agree(root, monkeypatch, said, flags):
    trees.pi5(root, throttled="0x50000")
    through(monkeypatch, Firmware(flags=said))
    found = Throttle(str(root))
    assert found.flags() == {"get_throttled": flags}
    unplug(root)
    # Without the program, only a mailbox that agreed with it goes on.
    assert found.flags() == ({"get_throttled": said} if said == flags else {})


def test_without_the_program_the_mailbox_is_believed(root, monkeypatch):
    through(monkeypatch, Firmware(flags=0x4))
    assert Throttle(str(root)).flags() == {"get_throttled": 0x4}
