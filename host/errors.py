"""Every error that a user can meet, as one tree.

    EdgeError                    exit code 1: something failed
    |-- UserError                exit code 2: the command was wrong; says what to type
    |   |-- ModelFileError       missing, truncated, zero bytes, not a model
    |   |-- ShapeError           a dimension left open, or a shape that does not fit
    |   `-- UnknownDeviceError   no device of that name
    |-- ImportFailed             an operator or a construct that the importer cannot express
    |-- LoweringError            no lowering for this graph on this target
    |-- ScheduleError            a candidate that does not apply to its task
    |-- BuildError               compiling or linking a kernel failed
    |-- EngineError              an engine cannot run this model
    |-- DeviceError              the device or its agent went away or refused
    |   |-- SessionLost          the executor crashed, hung or was cut off
    |   |-- DeviceBusy           another host has the device
    |   |-- DeviceDrifted        its times are not those of its records any more
    |   `-- DeviceFull           no space left on the device
    |-- MeasureError             a measurement that gave no usable number
    |-- VerifyError              outputs differ from the golden ones
    |-- TlmError                 a language model, or a sentence of its language, that cannot be used
    `-- BundleError              a bundle that is damaged or of another version

Each message is one line: what failed, where, and what to do next.
"""

from __future__ import annotations


class EdgeError(Exception):
    """Base of all errors of the product."""

    exit_code = 1


class UserError(EdgeError):
    """The user asked for something impossible; the message says what to type instead."""

    exit_code = 2


class ModelFileError(UserError):
    """The model file is missing, truncated, empty or not a model."""


class ShapeError(UserError):
    """A dimension was left open or a given shape does not fit the model."""


class UnknownDeviceError(UserError):
    """No device has this name."""


class ImportFailed(EdgeError):
    """The compiler cannot express this model; another engine may still run it.

    Attributes:
        operator: the operator that is the reason, where one is known.
    """

    def __init__(self, message: str, operator: str | None = None) -> None:
        super().__init__(message)
        self.operator = operator


class LoweringError(EdgeError):
    """A graph has no lowering on this target."""


class ScheduleError(EdgeError):
    """A candidate does not apply to its task."""


class BuildError(EdgeError):
    """A program or a library could not be compiled or linked."""


class EngineError(EdgeError):
    """An engine cannot run this model."""


class DeviceError(EdgeError):
    """The device or its agent went away or refused."""


class SessionLost(DeviceError):
    """The executor crashed, hung, ran out of memory or was cut off."""


class DeviceBusy(DeviceError):
    """Another host has the device; the message says who."""


class LeaseLost(DeviceBusy):
    """The device was this command's and is another's: to connect again does not give it back."""


class DeviceDrifted(DeviceError):
    """The device is taken out, since its times have drifted; the message says what was found."""


class DeviceFull(DeviceError):
    """The device has no space left."""


class PayloadError(EdgeError):
    """Nothing that could be sent to a board runs the engine there, or it cannot be made here."""


class MeasureError(EdgeError):
    """A measurement gave no usable number."""


class VerifyError(EdgeError):
    """Outputs differ from the golden ones by more than the tolerance."""


class BundleError(EdgeError):
    """A bundle is damaged, incomplete or of another schema version."""


class TlmError(EdgeError):
    """A language model that is damaged or of another version, or something its language cannot say."""


def one_line(error: BaseException) -> str:
    """The message of an error without line breaks."""
    return " ".join(str(error).split())
