"""`sdk watch`: whether boards still run programs as fast as in their epoch, and what follows if one does not.

A board's reference programs are measured. Where they have drifted, twice in a row, its epoch is marked: the
board is taken out, and its records of that epoch are left out. The models that are installed there are
measured again. A mark is one row, written when all times are known: a watch that is interrupted leaves the
board as it was, or taken out, and the next one goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from host.calibration.drift import Change, changes, confirmed, system_changes
from host.calibration.references import measure_references
from host.commands.deployed_models import DeployedModel, measure_deployed
from host.compile.tuning.kernel_tuning import records_of
from host.deploy.leased_boards import LeasedBoards
from host.errors import BundleError, DeviceError, EdgeError, MeasureError, UserError
from host.model.reference_times import ReferenceTimes
from host.options import CompileOptions
from host.options.engine import LOCAL
from host.progress import Progress, Silence
from host.records.epochs import BoardEpochs, Epoch, EpochDamaged
from host.transport import Device
from host.transport.wire import client_name
from host.tuning.runners.reach import Reach, open_reach

# Of `Watched.status`.
BEGUN, STEADY, DRIFTED, ACCEPTED, FAILED = "begun", "steady", "drifted", "accepted", "failed"


@dataclass(frozen=True)
class WatchOptions:
    """How boards are watched.

    Attributes:
        records: URL or path of the records; the user's own if "".
        accept: begin a new epoch of a board that has drifted.
        rollback: roll back each model whose earlier version is shown to be faster.
        wait_s: how long to wait for a board that another host has.
        engine: from where boards are reached; see `host.execution.open_engine`.
    """

    records: str = ""
    accept: bool = False
    rollback: bool = False
    wait_s: float = 0.0
    engine: str = LOCAL


@dataclass(frozen=True)
class Watched:
    """What was found of a board.

    Attributes:
        device: the user's name for it.
        status: "begun", where it has its first epoch now; "steady"; "drifted", now or earlier; "accepted",
            where a new epoch has begun; "failed", where it could not be measured.
        changes: of its reference programs since its epoch began, the greatest first.
        system: what it runs instead of what it ran.
        reason: why it is taken out, or could not be measured; "" otherwise.
        since: seconds since 1970 at which its present epoch began; None without one.
        records: of the epoch that was marked just now; None where none was.
        models: that are installed on a board that has drifted, measured again.
        rolled_back: names of models that run their earlier version now.
    """

    device: str
    status: str
    changes: tuple[Change, ...] = ()
    system: tuple[str, ...] = ()
    reason: str = ""
    since: float | None = None
    records: int | None = None
    models: tuple[DeployedModel, ...] = ()
    rolled_back: tuple[str, ...] = ()


def watch(
    names: Sequence[str], options: WatchOptions, progress: Progress | None = None
) -> tuple[Watched, ...]:
    """Watch boards, one after the other.

    Args:
        names: of the devices.
        options: of the watch.
        progress: receives a stage for each board.

    Returns:
        What was found of each; one that could not be measured has the reason.

    Raises:
        UserError: a device has no board file, or is emulated.
        EdgeError: the records cannot be used.
    """
    shown = progress or Silence()
    opened = CompileOptions(Path(), records=options.records, wait_s=options.wait_s, engine=options.engine)
    found = []
    with BoardEpochs(records_of(opened)) as epochs, open_reach(options.engine, names) as reach:
        for name in names:
            shown.stage(name)
            try:
                found.append(_watched(name, opened, epochs, options, shown, reach))
            except UserError:
                raise
            except EdgeError as error:
                found.append(Watched(name, FAILED, reason=str(error)))
    return tuple(found)


def _watched(
    name: str,
    opened: CompileOptions,
    epochs: BoardEpochs,
    options: WatchOptions,
    progress: Progress,
    reach: Reach,
) -> Watched:
    """Watch one board, which is leased meanwhile."""
    with (
        LeasedBoards(opened, "watch", progress.note, reach, take_drifted=True) as boards,
        boards.connect(name) as device,
    ):
        # Nobody measures there between two sessions of this watch.
        device.reserve()
        return _Watch(device, epochs, options, progress, reach).run()


def begin_first_epoch(
    device: Device, records: str | Path, progress: Callable[[int, int], None] | None = None
) -> Epoch | None:
    """Begin a board's first epoch, after a calibration; None where it has one already, which stays.

    Raises:
        MeasureError: it throttles, or gives no times.
        DeviceError: it went away.
        EdgeError: the records cannot be used.
    """
    with BoardEpochs(records) as epochs:
        if not device.timing.decides or epochs.present(device.place) is not None:
            return None
        return epochs.begin(device.place, device.name, measure_references(device, progress))


@dataclass(frozen=True)
class _Watch:
    """One watch of one board."""

    device: Device
    epochs: BoardEpochs
    options: WatchOptions
    progress: Progress
    reach: Reach

    def run(self) -> Watched:
        """Measure the board and do what follows."""
        device, epoch = self.device, self._epoch()
        now = self._references()
        if epoch is None:
            begun = self.epochs.begin(device.place, device.name, now)
            return Watched(device.name, BEGUN, since=begun.began_at)
        try:
            found = changes(epoch.times, now)
        except MeasureError as error:
            return self._other_programs(epoch, now, error)
        system = system_changes(epoch.times, now)
        seen = Watched(device.name, STEADY, found, system, since=epoch.began_at)
        if epoch.drift is not None:
            return self._out(replace(seen, reason=epoch.drift.reason), now)
        if not any(one.drifted for one in found):
            return seen
        now = self._references()
        again = changes(epoch.times, now)
        drifted = confirmed(found, again)
        seen = replace(seen, changes=again)
        if not drifted:
            return seen
        reason = drift_reason(drifted, system)
        self.epochs.end(epoch.key, reason, client_name())
        count = self.epochs.records_of(epoch.key)
        return self._out(replace(seen, reason=reason, records=count), now)

    def _epoch(self) -> Epoch | None:
        try:
            return self.epochs.present(self.device.place)
        except EpochDamaged:
            if not self.options.accept:
                raise
            return None

    def _references(self) -> ReferenceTimes:
        return self.reach.beside(self.device, measure_references, self.progress.advance)

    def _out(self, seen: Watched, now: ReferenceTimes) -> Watched:
        """A board that is taken out: a new epoch if that is wanted, and its models."""
        models: tuple[DeployedModel, ...] = ()
        try:
            models = measure_deployed(self.device)
        except DeviceError as error:
            self.progress.note(f"{self.device.name}: its models are not measured again: {error}")
        rolled_back = []
        for one in models if self.options.rollback else ():
            if not one.earlier_is_faster:
                continue
            try:
                self.device.rollback(one.name)
                rolled_back.append(one.name)
            except BundleError as error:
                self.progress.note(f"{self.device.name}: {error}")
        seen = replace(seen, status=DRIFTED, models=models, rolled_back=tuple(rolled_back))
        if not self.options.accept:
            return seen
        begun = self.epochs.begin(self.device.place, self.device.name, now)
        return replace(seen, status=ACCEPTED, since=begun.began_at)

    def _other_programs(self, epoch: Epoch, now: ReferenceTimes, error: MeasureError) -> Watched:
        """An epoch of an older version of EdgeTLM, or of a device that is described otherwise now."""
        name = self.device.name
        if not self.options.accept:
            raise MeasureError(
                f"{name}: {error}, so that they cannot be compared; begin a new epoch with sdk watch {name} "
                "--once --accept"
            ) from error
        begun = self.epochs.begin(self.device.place, name, now)
        return Watched(name, ACCEPTED, system=system_changes(epoch.times, now), since=begun.began_at)


def drift_reason(drifted: Sequence[Change], system: Sequence[str]) -> str:
    """What is kept and shown of a drift: its greatest change, and what the board runs instead."""
    what = f"{drifted[0]} than when its epoch began"
    return f"{what} ({', '.join(system[:3])})" if system else what
