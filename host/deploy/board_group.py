"""The devices of one command: the first that answers is the lead; the others measure at the same time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from host.calibration import board_of, calibrated
from host.closing import Closing
from host.errors import DeviceError, UserError
from host.model import DeviceProfile
from host.options.engine import LOCAL
from targets import Board, HardwareModel, MachineDescription

if TYPE_CHECKING:
    from host.transport import Device
    from host.tuning.runners.connection import BoardConnection
    from host.tuning.runners.reach import Reach

# Calibrated figures of two boards of a kind; between two calibrations of one board they differ by less.
_CLOSE = 0.25


class Boards(Closing):
    """Connected devices; a context manager that closes them.

    Args:
        names: of the devices, as `connect` takes them.
        note: receives a line about each device that does not answer.
        connect: connects to a device by its name.
        reach: how devices are reached.

    Attributes:
        lead: the first device that answered, by its current connection.

    Raises:
        DeviceError: no device answers.
        UserError: the devices are of several kinds.
    """

    def __init__(
        self,
        names: Sequence[str],
        note: Callable[[str], None],
        connect: Callable[[str], Device],
        reach: Reach,
    ) -> None:
        self._reach = reach
        self._note = note
        self._connect = connect
        with ThreadPoolExecutor(len(names)) as pool:
            answers = list(pool.map(self._try_connect, names))
        self._devices = {
            name: one for name, one in zip(names, answers, strict=True) if not isinstance(one, DeviceError)
        }
        refusals = [one for one in answers if isinstance(one, DeviceError)]
        if not self._devices:
            raise refusals[0]
        for refusal in refusals:
            note(f"{refusal}; the others begin without it")
        self._names = tuple(names)
        self._lead = next(iter(self._devices))
        self.lead: Device = self._devices[self._lead]
        try:
            # Sessions come and go; another host that waits is not let in between.
            self.lead.reserve()
            self._machine = self.lead.describe()
            for name, device in self._devices.items():
                require_alike(self._lead, self._machine, name, device)
        except (DeviceError, UserError):
            self.close()
            raise

    def _try_connect(self, name: str) -> Device | DeviceError:
        try:
            return self._connect(name)
        except DeviceError as error:
            return error

    def replace(self, device: Device) -> None:
        """Use another connection in place of the lead's lost one."""
        self.lead = device

    def ready(self) -> Device:
        """The lead if it still answers; else the first device that connects again, which becomes the lead.

        Raises:
            DeviceError: no device answers.
        """
        try:
            self.lead.state()
        except DeviceError as error:
            reason = error
        else:
            return self.lead
        self.lead.close()
        for name in (self._lead, *(name for name in self._names if name != self._lead)):
            found = self._try_connect(name)
            if isinstance(found, DeviceError):
                reason = found
                continue
            self._devices[name] = self.lead = found
            require_alike(self._lead, self._machine, name, found)
            if name != self._lead:
                self._note(f"{self._lead} does not answer: {name} goes on in its place")
                self._lead = name
            return found
        raise reason

    def others(self, profile: DeviceProfile) -> tuple[BoardConnection, ...]:
        """Connections to the other devices, also to those that have not answered; the caller closes them."""
        names = [name for name in self._names if name != self._lead]
        return connections_of_kind(
            self._lead, self._machine, names, profile, self._connect, self._reach, self._devices
        )

    def close(self) -> None:
        """Close every connection."""
        for device in (*self._devices.values(), self.lead):
            try:
                device.close()
            except DeviceError as error:
                self._note(f"{device.name}: closing the connection failed: {error}")


def device_names(text: str, engine: str = LOCAL) -> tuple[str, ...]:
    """The devices that `--device` means: a name, several with commas, or `tag:NAME`.

    Args:
        text: as given.
        engine: of the command; the hosts of one that is not this process know names of their own.

    Raises:
        UnknownDeviceError: there is no such device.
    """
    if engine != LOCAL:
        return tuple(dict.fromkeys(name for one in text.split(",") if (name := one.strip())))
    from host.devices import resolve

    return tuple(entry.name for entry in resolve(text))


def connections_of_kind(
    lead: str,
    machine: MachineDescription,
    names: Sequence[str],
    profile: DeviceProfile,
    connect: Callable[[str], Device],
    reach: Reach,
    connected: Mapping[str, Device] | None = None,
) -> tuple[BoardConnection, ...]:
    """Connections to devices that measure at the same time as a lead of their kind.

    Args:
        lead: name of the lead.
        machine: of the lead.
        names: of the devices.
        profile: of all of them.
        connect: connects to a device by its name.
        reach: how devices are reached.
        connected: devices that are connected already, by name; the returned connections take them over.
    """
    from host.tuning.runners.connection import BoardAccess

    def connector(name: str) -> Callable[[], Device]:
        def connect_alike() -> Device:
            device = connect(name)
            try:
                require_alike(lead, machine, name, device)
            except UserError as error:
                device.close()
                raise DeviceError(str(error)) from error
            except DeviceError:
                device.close()
                raise
            return device

        return connect_alike

    there = connected or {}
    boards = (BoardAccess(name, profile, connector(name), there.get(name)) for name in names)
    return tuple(reach.connection(board) for board in boards)


def require_alike(lead: str, machine: MachineDescription, name: str, device: Device) -> None:
    """Refuse a device of another kind than the lead's.

    Raises:
        UserError: the kinds differ; the message says in what.
    """
    difference = difference_of(lead, machine, name, device.describe())
    if difference:
        raise UserError(
            f"{lead} and {name} are not of one kind: {difference}; one job is measured on boards of one "
            "kind, so give each kind a command of its own"
        )


def difference_of(name: str, machine: MachineDescription, other_name: str, other: MachineDescription) -> str:
    """The first difference of two devices that affects the speed of programs; "" if they are of one kind."""
    if name == other_name:
        return ""
    board, other_board = board_of(machine, name), board_of(other, other_name)
    for what, one, two in (
        ("board", board.name, other_board.name),
        ("processor", machine.cpu_name, other.cpu_name),
        ("number of cores", machine.cores, other.cores),
        ("instructions", set(machine.features), set(other.features)),
    ):
        if one != two and isinstance(one, set) and isinstance(two, set):
            return f"only one of them has {', '.join(sorted(one ^ two)[:4])}"
        if one != two:
            return f"{what} {one or 'unknown'} and {two or 'unknown'}"
    return _calibrations_differ(name, machine, board, other_name, other, other_board)


def _calibrations_differ(
    name: str,
    machine: MachineDescription,
    board: Board,
    other_name: str,
    other: MachineDescription,
    other_board: Board,
) -> str:
    first, _ = calibrated(name, machine, board)
    second, _ = calibrated(other_name, other, other_board)
    if first.source != "calibrated" or second.source != "calibrated":
        return ""
    rates = _rates(second)
    for what, rate in _rates(first).items():
        ratio = rate / rates[what] if rates.get(what) else 1.0
        if not 1.0 / (1.0 + _CLOSE) <= ratio <= 1.0 + _CLOSE:
            return (
                f"calibrated {what} of {other_name} is {1 / ratio:.2f} of that of {name} "
                f"(sdk devices calibrate {other_name} measures it again)"
            )
    return ""


def _rates(hardware: HardwareModel) -> dict[str, float]:
    """The peak (flop/s) and the bandwidth of each memory level (bytes/s) of one core, by name."""
    return {"peak": hardware.peak_flops} | {
        f"{level.name} bandwidth": level.bandwidth_bytes_per_s for level in hardware.levels
    }
