"""The errors that a call can raise: `EdgeError` and its kinds; a message is one line with the next step."""

from __future__ import annotations

from host.errors import (
    BuildError,
    BundleError,
    DeviceBusy,
    DeviceError,
    DeviceFull,
    EdgeError,
    EngineError,
    ImportFailed,
    LeaseLost,
    LoweringError,
    MeasureError,
    ModelFileError,
    ScheduleError,
    SessionLost,
    ShapeError,
    TlmError,
    UnknownDeviceError,
    UserError,
    VerifyError,
)

__all__ = [
    "BuildError",
    "BundleError",
    "DeviceBusy",
    "DeviceError",
    "DeviceFull",
    "EdgeError",
    "EngineError",
    "ImportFailed",
    "LeaseLost",
    "LoweringError",
    "MeasureError",
    "ModelFileError",
    "ScheduleError",
    "SessionLost",
    "ShapeError",
    "TlmError",
    "UnknownDeviceError",
    "UserError",
    "VerifyError",
]
