"""Calibrations on the host's disk, one file a device."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

from device_agent.contract.text import printable
from host.calibration.foreign import for_machine
from host.calibration.model import Calibration, machine_hash
from host.errors import UserError
from host.files import write_whole, writing
from host.places import data_root
from targets import Board, HardwareModel, MachineDescription, board_for, board_names


def calibration_path(device: str) -> Path:
    """The path of a device's calibration: below XDG_DATA_HOME, else ~/.local/share."""
    return data_root() / "calibration" / f"{quote(device, safe='')}.json"


def save(calibration: Calibration) -> Path:
    """Store a calibration in place of an earlier one, whole or not at all; returns its path.

    Raises:
        DeviceFull: no space left on the host.
    """
    path = calibration_path(calibration.device)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, f"{json.dumps(calibration.to_json(), indent=1)}\n".encode())
    return path


def load(device: str) -> Calibration | None:
    """The stored calibration of a device, or None if it was never calibrated.

    Raises:
        UserError: the file is damaged or of another version.
    """
    path = calibration_path(device)
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}); run sdk devices calibrate {device}") from error
    try:
        return Calibration.from_json(content)
    except UserError as error:
        raise UserError(f"{path}: {error}; run sdk devices calibrate {device}") from error


def board_of(description: MachineDescription, device: str) -> Board:
    """The board of a described device.

    Raises:
        UserError: no board file describes it.
    """
    board = board_for(description)
    if board is None:
        known = ", ".join(board_names())
        raise UserError(
            f"device {device} is a {description.machine}, which no board file describes (there is {known})"
        )
    return board


def calibrated(device: str, description: MachineDescription, board: Board) -> tuple[HardwareModel, str]:
    """The hardware model to make programs for, and a note for the user.

    A device that was never calibrated takes the figures of one of its kind that came with a pack of records.

    Args:
        device: name of the device.
        description: what its agent says of it now.
        board: its kind.

    Returns:
        The calibrated model and where it is from; the board's own model and "" where there is no
        calibration, or with the reason why the stored one is not used.
    """
    again = f"run sdk devices calibrate {device}"
    try:
        found = load(device)
    except UserError as error:
        return board.hardware, f"declared figures are used: {error}"
    if found is None:
        return _from_pack(device, description, board)
    if found.machine != machine_hash(description, board):
        return board.hardware, (
            f"declared figures are used: the calibration of {device} of {found.date[:10]} was taken on"
            f" another machine or for other vectors; {again}"
        )
    return found.applied(board.hardware), f"{device} as calibrated on {found.date[:10]}"


def _from_pack(device: str, description: MachineDescription, board: Board) -> tuple[HardwareModel, str]:
    try:
        known = for_machine(machine_hash(description, board))
    except UserError as error:
        return board.hardware, f"declared figures are used: {error}"
    if known is None:
        return board.hardware, ""
    found, signer = known
    complaints = found.complaints(board.hardware)
    if found.board != board.name:
        complaints.append(f"the board {printable(found.board)}")
    if complaints:
        return board.hardware, (
            f"declared figures are used: the calibration in the pack of {printable(signer)} has"
            f" {complaints[0]}; run sdk devices calibrate {device}"
        )
    return found.applied(board.hardware), (
        f"{device} as its kind was calibrated on {found.date[:10]}, from a pack of {printable(signer)}"
    )
