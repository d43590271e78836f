"""Power modes of a device: list them, and set them temporarily."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

from host.errors import DeviceError, MeasureError, UserError
from host.transport.replies import fields_of, shown

ALL = "all"


class AgentClient(Protocol):
    """The part of a device that power modes need."""

    name: str

    def request(self, command: str, **arguments: Any) -> dict[str, Any]:
        """One command of the agent."""


@dataclass(frozen=True)
class PowerMode:
    """One power mode as the agent lists it.

    Attributes:
        name: for setting the mode.
        kind: "nvpmodel", "governor" or "max_frequency".
        current: whether the device is in this mode; one mode of each kind is current.
        settable: whether the agent may set the mode.
        reason: why the agent may not.
    """

    name: str
    kind: str
    current: bool
    settable: bool
    reason: str = ""


@dataclass(frozen=True)
class Setting:
    """A state of the device to measure in.

    Attributes:
        name: of the mode; for the original state, the names of the current modes of all kinds.
        mode: to set; None for the original state of the device.
    """

    name: str
    mode: PowerMode | None = None


def list_modes(device: AgentClient) -> tuple[PowerMode, ...]:
    """The power modes of a device, including those that cannot be set.

    Raises:
        DeviceError: the device was lost, or its agent has no power modes.
    """
    reply = fields_of(device.name, device.request("modes.list"))
    return tuple(
        PowerMode(
            name=shown(one.name("name")),
            kind=shown(one.name("kind")),
            current=one.truth("current"),
            settable=one.truth("settable"),
            reason=shown(one.text("reason", standard="")),
        )
        for one in reply.objects("modes")
    )


def current_modes(modes: Sequence[PowerMode]) -> str:
    """The names of the current modes of the device, with commas; "" if it has none."""
    return ", ".join(mode.name for mode in modes if mode.current)


def settings_of(modes: Sequence[PowerMode], asked: Sequence[str], device: str) -> tuple[Setting, ...]:
    """The states to measure in, the original state first.

    Args:
        modes: of the device.
        asked: names, or "all" for every mode that can be set; () for the original state only.
        device: its name, for messages.

    Raises:
        UserError: a mode is unknown, or cannot be set.
    """
    home = Setting(current_modes(modes))
    if not asked:
        return (home,)
    if ALL in asked:
        wanted = [mode for mode in modes if mode.settable]
    else:
        wanted = [_found(modes, name, device) for name in dict.fromkeys(asked)]
    return (home, *(Setting(mode.name, mode) for mode in wanted if not mode.current))


def _found(modes: Sequence[PowerMode], name: str, device: str) -> PowerMode:
    mode = next((one for one in modes if one.name == name), None)
    if mode is None:
        known = ", ".join(one.name for one in modes if one.settable or one.current)
        raise UserError(f"--power-modes {name}: {device} has no such mode; it has {known or 'none to set'}")
    if not mode.settable and not mode.current:
        reason = mode.reason or "the agent may not set it"
        raise UserError(f"--power-modes {name}: {device} cannot be set to it ({reason})")
    return mode


class ModeSwitch:
    """Sets power modes and restores the original state at the end; a context manager.

    The agent also restores the state when the connection ends, so that a crash of the host leaves nothing
    changed.

    Args:
        device: connected.
        modes: its modes as they were found.
        note: receives a line about a mode that could not be restored.
    """

    def __init__(self, device: AgentClient, modes: Sequence[PowerMode], note: Callable[[str], None]) -> None:
        self._device = device
        self._found = {mode.kind: mode for mode in modes if mode.current}
        self._note = note
        self._set: PowerMode | None = None

    def set(self, setting: Setting) -> None:
        """Put the device into a state; the previous setting is undone first.

        Raises:
            MeasureError: the agent refuses.
        """
        mode = setting.mode
        if mode == self._set:
            return
        try:
            if self._set is not None and (mode is None or mode.kind != self._set.kind):
                self._undo(self._set)
            if mode is not None:
                # Before it is asked for: a refusal may come after half of it was done.
                self._set = mode
                self._device.request("modes.set", mode=mode.name)
        except DeviceError as error:
            raise MeasureError(f"power mode {setting.name} cannot be set: {error}") from error

    def _undo(self, mode: PowerMode) -> None:
        found = self._found.get(mode.kind)
        if found is not None:
            self._device.request("modes.set", mode=found.name)
        self._set = None

    def __enter__(self) -> ModeSwitch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._set is None:
            return
        mode = self._set
        try:
            self._undo(mode)
        except DeviceError as failure:
            found = self._found.get(mode.kind)
            name = found.name if found is not None else "what it was"
            self._note(
                f"{self._device.name}: the power mode was not restored to {name} ({failure}); set it there"
            )
