"""The mailbox of a Raspberry Pi by a firmware of the test's own (wiki "Mailbox property interface")."""

from __future__ import annotations

import os

import pytest

from device_agent.mailbox import Mailbox
from device_agent.throttle import Throttle
from tests.unit.device_agent.power import trees


class Firmware:
    """Answers a property request as the firmware does, or refuses."""

    def __init__(self, flags=None, refuses=None):
        self.flags = flags
        self.refuses = refuses
        self.asked = 0

    def __call__(self, descriptor, request, words, mutable):
        self.asked += 1
        if self.refuses:
            raise OSError(self.refuses, os.strerror(self.refuses))
        assert request == 0xC0086400 and mutable
        assert list(words) == [28, 0, 0x30046, 4, 0, 0, 0]
        if self.flags is not None:
            words[1], words[4], words[5] = 0x80000000, 0x80000004, self.flags
        return 0


@pytest.fixture
def root(tmp_path):
    """A system root with a device where the mailbox is."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/vcio").symlink_to("/dev/null")
    return tmp_path


def test_flags_come_without_a_program(root):
    firmware = Firmware(flags=0x50005)
    mailbox = Mailbox(str(root), firmware)
    assert mailbox.throttled() == 0x50005 and mailbox.throttled() == 0x50005
    assert firmware.asked == 2


@pytest.mark.parametrize("firmware", [Firmware(), Firmware(refuses=25), Firmware(refuses=13)])
def test_a_mailbox_that_does_not_answer_is_asked_once(root, firmware):
    mailbox = Mailbox(str(root), firmware)
    assert mailbox.throttled() is None and mailbox.throttled() is None
    assert firmware.asked == 1


def test_without_a_mailbox_vcgencmd_is_asked(tmp_path):
    trees.write(tmp_path, "dev/vcio", "no device")
    assert Mailbox(str(tmp_path)).throttled() is None
    trees.pi5(tmp_path, throttled="0x4")
    assert Throttle(str(tmp_path)).flags() == {"get_throttled": 4}


def test_the_real_kernel_refuses_what_is_no_mailbox(root):
    assert Mailbox(str(root)).throttled() is None
