"""The records of every tuning: list, export and import."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from host.errors import EdgeError, ScheduleError, UserError

if TYPE_CHECKING:
    from host.options import CompileOptions
    from host.progress import Progress
    from host.records import Record, RecordStore
    from host.records.metaschedule import Exported
    from host.schedules import DesignSpace


_Item = TypeVar("_Item")
# What reading a database may take: of TVM itself, and of what is in the files.
_MEMORY_BYTES, _MEMORY_PER_BYTE = 3 << 30, 100
_CPU_S, _CPU_S_PER_MB = 60.0, 5.0


@dataclass(frozen=True, eq=False)
class ModelTasks:
    """The functions of a model on one device.

    Attributes:
        spaces: design spaces by workload hash.
        profile: of the device, in plain data.
    """

    spaces: Mapping[str, DesignSpace]
    profile: Mapping[str, Any]


@dataclass(frozen=True)
class ImportCounts:
    """The counts of an import.

    Attributes:
        new, found: records of ours that are new, and all that the file holds.
        new_foreign, found_foreign: the same of other programs.
        left_out: numbers of records that were not taken, by reason.
        refused: one line about records with impossible values; "" if there are none.
    """

    new: int
    found: int
    new_foreign: int
    found_foreign: int
    left_out: Mapping[str, int]
    refused: str = ""


@dataclass(frozen=True)
class CopyCounts:
    """The counts of a copy of a store.

    Attributes:
        new, found: records of ours that are new, and all that were read.
        new_foreign, found_foreign: the same of other programs.
        left_out: records with impossible values.
    """

    new: int
    found: int
    new_foreign: int
    found_foreign: int
    left_out: int = 0


# Records in one transaction of a copy: what was copied before a failure stays, and is not copied again.
_COPIED_TOGETHER = 5000


def copy_store(source: RecordStore, target: RecordStore, copied: Callable[[int], None]) -> CopyCounts:
    """Add all records of a store to another; those that are there already are not added again.

    Args:
        source: is read.
        target: is added to.
        copied: receives the number of records so far.

    Raises:
        EdgeError: one of the databases refuses; what was copied until then stays.
    """
    from host.records.checks import is_plausible

    new = found = new_foreign = found_foreign = left_out = 0
    for batch in _in_parts(source):
        kept = list(filter(is_plausible, batch))
        new += target.append(kept)
        found += len(batch)
        left_out += len(batch) - len(kept)
        copied(found)
    for foreign in _in_parts(source.foreign()):
        new_foreign += target.append_foreign(foreign)
        found_foreign += len(foreign)
        copied(found + found_foreign)
    return CopyCounts(new, found, new_foreign, found_foreign, left_out)


def _in_parts(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    rest = iter(items)
    while part := list(islice(rest, _COPIED_TOGETHER)):
        yield part


def upgrade_store(records: str) -> str:
    """Make the tables of a store, or bring them up to date; returns its name without secrets.

    Raises:
        EdgeError: it cannot be opened, or is not this user's to change.
    """
    from host.places import records_file
    from host.records.database import Database

    database = Database(records or records_file(), upgrading=True)
    database.engine.dispose()
    return database.name


def downgrade_store(records: str, version: int) -> str:
    """Bring a store back to an earlier version of the schema; returns its name without secrets.

    Raises:
        UserError: there is no such version.
        EdgeError: it cannot be opened, or is not this user's to change.
    """
    from host.places import records_file
    from host.records.database import Database

    database = Database(records or records_file())
    try:
        database.downgrade(version)
    finally:
        database.engine.dispose()
    return database.name


def open_store(records: str, must_exist: bool = False) -> RecordStore:
    """Open the records.

    Args:
        records: SQLAlchemy URL or path; the user's own store if "".
        must_exist: refuse a file that is not there instead of making it.

    Raises:
        UserError: there is no such file.
        EdgeError: the database cannot be opened or is of another version.
    """
    from host.places import records_file

    path = Path(records) if records else records_file()
    if must_exist and "://" not in records and not path.is_file():
        raise UserError(
            f"{path}: no records there yet; sdk deploy --trials N makes some, or name a store with --records"
        )
    from host.records import RecordStore

    return RecordStore(records if "://" in records else path)


def device_data(device: str) -> dict[str, Any]:
    """The profile of a device in plain data, without the number of threads.

    Raises:
        UnknownDeviceError: no device has this name.
        DeviceError: it does not answer.
    """
    from host.compile.device_profile import profile_of
    from host.records import profile_data
    from host.transport import connect

    with connect(device) as found:
        return without_threads(profile_data(profile_of(found, 1)))


def without_threads(profile: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a profile that does not depend on the number of threads."""
    return {name: value for name, value in profile.items() if name not in ("threads", "shared_programs")}


def tasks_of(options: CompileOptions, device: str, progress: Progress) -> ModelTasks:
    """Lower a model and open the design space of each of its functions.

    Raises:
        UserError: not a model, its shapes do not fit, or one of them is a range.
        ImportFailed: the compiler cannot express the model.
        DeviceError: the device does not answer.
    """
    from host.compile.device_profile import profile_of
    from host.compile.model_compiler import ModelCompiler
    from host.compile.model_file import read_model
    from host.compile.processor import profile_for_processor
    from host.model_file import detect_format
    from host.options.of_model import check_for_model
    from host.progress import StageClock
    from host.records import profile_data
    from host.schedules import space_for
    from host.transport import connect

    options.check()
    check_for_model(options, options.model, detect_format(options.model))
    if options.ranged:
        raise UserError("records are of one length: give one with --shape, not a range")
    with connect(device) as found:
        profile = profile_for_processor(profile_of(found, options.threads), options)
    clock = StageClock(progress)
    compiler = ModelCompiler(options, profile, Path(), clock)
    model = read_model(options, clock, profile=profile)
    spaces = {}
    for task in compiler.lower(model).tasks:
        try:
            spaces[task.workload_hash] = space_for(task, profile.hardware, profile.threads)
        except ScheduleError as error:
            progress.note(f"{task.name} has no design space: {error}")
    return ModelTasks(spaces, profile_data(profile))


def export_metaschedule(store: RecordStore, tasks: ModelTasks, folder: Path) -> Exported:
    """Write the records of a model's functions on one device, and all foreign ones, for MetaSchedule.

    Raises:
        UserError: the folder has a database already.
    """
    from host.records.metaschedule import export_database

    records = store.select(tasks.profile, failed=True)
    return export_database(records, store.foreign(), tasks.spaces, folder)


def import_lines(store: RecordStore, path: Path) -> ImportCounts:
    """Add the records of a file of JSON lines; records with impossible values are left out.

    Raises:
        EdgeError: a line is damaged; nothing is added.
    """
    from host.records.json_lines import Refused, read_lines

    found, refused = 0, Refused()

    def counted() -> Iterator[Record]:
        nonlocal found
        for record in read_lines(path, refused):
            found += 1
            yield record

    new = store.append(counted())
    return ImportCounts(new, found, 0, 0, {}, str(refused))


def import_metaschedule(store: RecordStore, tasks: ModelTasks | None, folder: Path) -> ImportCounts:
    """Add the records of a MetaSchedule database.

    Args:
        store: to add to.
        tasks: of the model that records of ours are for; without it only foreign ones are taken.
        folder: of the database.

    Raises:
        EdgeError: a line is damaged; nothing is added.
    """
    from host.lowering.tasks import workload_hash
    from host.records.metaschedule import import_database

    _try_in_child(folder)
    spaces, profile = (tasks.spaces, tasks.profile) if tasks is not None else ({}, {})
    found = import_database(folder, spaces, profile, workload_hash)
    new = store.append(found.records)
    new_foreign = store.append_foreign(found.foreign)
    return ImportCounts(
        new, len(found.records), new_foreign, len(found.foreign), found.left_out, found.refused
    )


def read_database(folder: str) -> None:
    """Read a MetaSchedule database for nothing but its errors; see `_try_in_child`."""
    from host.lowering.tasks import workload_hash
    from host.records.metaschedule import import_database

    import_database(Path(folder), {}, {}, workload_hash)


def _try_in_child(folder: Path) -> None:
    """Read a database once in a child process: some malformed functions crash TVM's reader.

    Raises:
        EdgeError: the child cannot read the database; the message has the reason.
    """
    from host.records.metaschedule import RECORDS, WORKLOADS
    from host.sandbox import Limits, Unforeseen, Worker, WorkerLost

    files = [folder / name for name in (WORKLOADS, RECORDS) if (folder / name).is_file()]
    size = sum(path.stat().st_size for path in files)
    cpu_s = _CPU_S + _CPU_S_PER_MB * size / 1e6
    limits = Limits(_MEMORY_BYTES + _MEMORY_PER_BYTE * size, cpu_s, 4 * cpu_s, 1 << 20)
    with Worker([folder.resolve()], limits, ("host.execution.without_torch",)) as worker:
        try:
            worker.call("sdk.management.records:read_database", {"folder": str(folder.resolve())})
        except (WorkerLost, Unforeseen) as error:
            raise EdgeError(
                f"{folder} cannot be read by MetaSchedule ({error}): nothing was imported"
            ) from error
