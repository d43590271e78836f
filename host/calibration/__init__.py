"""The rates of a device's processor: measured on the device, kept on the host, used for its programs."""

from __future__ import annotations

from host.calibration.model import Calibration, CurvePoint, LevelFigures, machine_hash
from host.calibration.store import board_of, calibrated, calibration_path, load, save

__all__ = [
    "Calibration",
    "CurvePoint",
    "LevelFigures",
    "board_of",
    "calibrated",
    "calibration_path",
    "load",
    "machine_hash",
    "save",
]
