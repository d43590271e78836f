"""Boards that a command has for itself: connected, leased where hosts share the records, and not drifted."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from host.closing import Closing
from host.compile.tuning.kernel_tuning import records_of
from host.errors import DeviceDrifted, EdgeError
from host.options import CompileOptions
from host.records.place import is_shared, is_there

if TYPE_CHECKING:
    from host.leases import Heartbeats, Lease, LeaseTable
    from host.transport import Device
    from host.tuning.runners.reach import Reach

# A heartbeat asks again sooner than any of another's statements would.
_PATIENCE_S = 5.0


class LeasedBoards(Closing):
    """Connects to boards; a board that is connected once stays leased until the end.

    A connection comes and goes with the board's sessions and reboots; the lease stays, so that no
    waiting host gets the board in between. With records of this machine alone, nothing is leased.

    A board whose times have drifted (`host.records.epochs`) is taken out, wherever the records are: a command
    that measures kernels is refused, any other gets a warning.

    Args:
        options: where the records are, and how long to wait.
        job: what is done, for those who wait: "tune", "deploy".
        note: receives a line on who has a board, and on a lease that is lost.
        reach: how boards are reached.
        take_drifted: whether boards that have drifted are as any others.

    Attributes:
        reach: how boards are reached.

    Raises:
        EdgeError: the shared records cannot be opened.
    """

    def __init__(
        self,
        options: CompileOptions,
        job: str,
        note: Callable[[str], None],
        reach: Reach,
        take_drifted: bool = False,
    ) -> None:
        self.reach = reach
        self._refuses = options.tuned
        self._take_drifted = take_drifted
        self._records = records_of(options)
        self._job = f"{job} {options.title}".strip()
        self._wait_s = options.wait_s
        self._note = note
        self._leases: dict[str, Lease] = {}
        self._devices: dict[str, Device] = {}
        # The place of each device that was connected, by the name that was asked for.
        self._places: dict[str, str] = {}
        self._warned: set[str] = set()
        self._lock = threading.Lock()
        self._table: LeaseTable | None = None
        self._heartbeats: Heartbeats | None = None
        if is_shared(self._records):
            from host.leases import Heartbeats, LeaseTable

            self._table = LeaseTable(self._records, _PATIENCE_S)
            self._heartbeats = Heartbeats(self._table)

    def connect(self, name: str) -> Device:
        """Connect to a device, and lease it unless this command has it already.

        Raises:
            UnknownDeviceError: no device has this name.
            DeviceBusy: another host has it, and had it for as long as this one waits.
            LeaseLost: this command had it, and lost it.
            DeviceDrifted: it is taken out.
            DeviceError: it does not answer.
            EdgeError: the leases cannot be asked for.
        """
        with self._lock:
            known = self._leases.get(self._places.get(name, ""))
        if known is not None:
            # Whether the board answers does not matter where it is another's.
            known.check()
        device = self.reach.connect(name, self._wait_s)
        try:
            # Nobody stands in line for a board that is refused.
            self._find_epoch(name, device)
            if self._table is None:
                return device
            with self._lock:
                had = device.place in self._leases
            self._lease(self._table, device).check()
            if not had:
                self._check_again(name, device)
        except BaseException:
            device.close()
            raise
        with self._lock:
            self._devices[device.place] = device
            self._places[name] = device.place
        return device

    def _check_again(self, name: str, device: Device) -> None:
        """See that a board that was just leased has not drifted while another had it."""
        try:
            self._find_epoch(name, device)
        except DeviceDrifted:
            with self._lock:
                lease = self._leases.pop(device.place)
            self._give_back(lease)
            raise

    def _find_epoch(self, name: str, device: Device) -> None:
        """Find the epoch of the records of a device; one that has drifted is refused, or a note reports it.

        Raises:
            DeviceDrifted: it is taken out.
            EdgeError: the records cannot be read.
        """
        if self._take_drifted or not is_there(self._records):
            return
        from host.records.epochs import present_epoch

        try:
            epoch = present_epoch(self._records, device.place, _PATIENCE_S)
        except EdgeError as error:
            if self._refuses:
                raise
            self._note(f"whether {device.name} has drifted is not known: {error}")
            return
        if epoch is None:
            return
        if epoch.drift is None:
            self.reach.epochs.update({name: epoch.key, device.name: epoch.key})
            return
        line = (
            f"{device.name} has drifted: {epoch.drift.reason}; measure it again with sdk watch {device.name} "
            "--once, or begin a new epoch with --accept"
        )
        if self._refuses:
            raise DeviceDrifted(line)
        with self._lock:
            warned = device.place in self._warned
            self._warned.add(device.place)
        if not warned:
            self._note(f"{line}; its measurements from before are not used")

    def close(self) -> None:
        """Give every board back."""
        with ExitStack() as closing:
            if self._table is not None:
                closing.callback(self._table.close)
            if self._heartbeats is not None:
                closing.callback(self._heartbeats.close)
            for lease in self._leases.values():
                closing.callback(self._give_back, lease)
            self._leases = {}

    def _lease(self, table: LeaseTable, device: Device) -> Lease:
        from host.leases import Request, leased
        from host.transport.wire import client_name

        place = device.place
        with self._lock:
            known = self._leases.get(place)
        if known is not None:
            return known
        request = Request(place, device.name, client_name(), self._job, secrets.token_hex(16))
        found = leased(
            table,
            request,
            self._wait_s,
            self._note,
            lambda reason: self._lost(place, reason),
            self._heartbeats,
        )
        with self._lock:
            self._leases[place] = found
        return found

    def _lost(self, place: str, reason: str) -> None:
        """Close the connection to a board at once, so that its sessions here do not block its new holder."""
        with self._lock:
            device = self._devices.get(place)
        if device is not None:
            self._note(f"{device.name}: its lease is lost, {reason}")
            # What is under way there fails, and `connect` does not give it again.
            device.agent.stop()

    def _give_back(self, lease: Lease) -> None:
        try:
            lease.close()
        except EdgeError as error:
            self._note(f"{lease.request.name}: its lease ends by itself within a minute: {error}")
