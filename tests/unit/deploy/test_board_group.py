from __future__ import annotations

from dataclasses import replace

import pytest

from host.deploy import board_group
from host.deploy.board_group import difference_of
from host.deploy.fleet import Installed
from sdk.cli.commands.several_devices import table
from sdk.fleet import FleetDeployment
from sdk.request import names_several
from targets import Board, HardwareModel, MachineDescription, declared

MACHINE = declared()["raspberry_pi_5"]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (MACHINE, ""),
        (replace(MACHINE, memory_bytes=MACHINE.memory_bytes // 2), ""),
        (replace(MACHINE, cpu_name="Cortex-X"), "processor"),
        (replace(MACHINE, cores=MACHINE.cores // 2), "number of cores 4 and 2"),
        (replace(MACHINE, features=(*MACHINE.features, "sve")), "only one of them has sve"),
        (declared()["raspberry_pi_4"], "board raspberry_pi_5 and raspberry_pi_4"),
    ],
)
def test_boards_are_of_one_kind_or_it_is_said_in_what_they_differ(
    other: MachineDescription, said: str
) -> None:
    found = difference_of("a", MACHINE, "b", other)
    assert said in found
    assert bool(found) == bool(said)


@pytest.mark.parametrize(("factor", "alike"), [(1.2, True), (1.4, False), (0.7, False)])
def test_calibrated_boards_of_one_kind_are_about_as_fast(
    monkeypatch: pytest.MonkeyPatch, factor: float, alike: bool
) -> None:
    def calibrated(device: str, description: object, board: Board) -> tuple[HardwareModel, str]:
        faster = factor if device == "b" else 1.0
        hardware = board.hardware
        return replace(hardware, source="calibrated", peak_flops=hardware.peak_flops * faster), ""

    monkeypatch.setattr(board_group, "calibrated", calibrated)
    found = difference_of("a", MACHINE, "b", MACHINE)
    assert (found == "") == alike
    if not alike:
        assert found.startswith(f"calibrated peak of b is {factor:.2f} of that of a")
        assert "sdk devices calibrate b" in found


def test_the_table_has_a_line_for_every_device() -> None:
    devices = (
        Installed("left", "raspberry_pi_5", "0123456789abcdef", 0.0125),
        Installed("right-hand", "raspberry_pi_5", reason="right-hand: no route to host"),
    )
    assert table(FleetDeployment((), devices)) == [
        "left        raspberry_pi_5     active  0123456789ab  12.500 ms",
        "right-hand  raspberry_pi_5     FAILED  right-hand: no route to host",
        "1 of 2 devices run it",
    ]
    assert [names_several(text) for text in ("a", "jetson", "a,b", "tag:kitchen")] == [
        False,
        False,
        True,
        True,
    ]
