"""Records as MetaSchedule's JSON database, both ways.

    database_workload.json        a line for each task: the hash and the function
    database_tuning_record.json   a line for each record: task, trace, seconds, target, arguments

Our records go out as the traces of their programs, so that stock MetaSchedule loads, ranks and applies them.
The format has no place for a device, its state, energy or a date: all of that travels in a mark at the end
of the trace, an annotation that is taken away again and changes no program. On the way in, a record with a
mark is ours if the design space still makes exactly this trace; every other one is foreign, and is kept as
it is.
"""

from __future__ import annotations

import base64
import json
import math
import shutil
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir import meta_schedule as ms

from device_agent.contract import strict_json
from device_agent.contract.limits import LIMITS
from device_agent.contract.text import printable
from host.errors import EdgeError, ScheduleError, UserError
from host.model import Candidate, Task
from host.records.checks import Implausible, check_foreign, is_time
from host.records.foreign import ForeignRecord
from host.records.json_lines import Refused, bounded_lines
from host.records.record import Record, content_of, key_of, record_of, why_untrusted

WORKLOADS = "database_workload.json"
RECORDS = "database_tuning_record.json"
# What MetaSchedule itself writes for a program that did not build or run, and from where on it believes so.
_FAILED_S = 1e10
_FAILED_FROM_S = 1e9
_MARK = "edgetlm.record"
# Attributes that name or describe a function, and are no part of the task.
_NAMES = ("global_symbol", "estimated_flops")
_ERRORS = (RuntimeError, ValueError, TypeError, LookupError, RecursionError)


class Space(Protocol):
    """The part of a design space that this module uses; see `host.schedules.DesignSpace`."""

    @property
    def task(self) -> Task:
        """The task of the design space."""

    def traces(self, candidate: Candidate) -> bool:
        """Whether the trace of a candidate's schedule gives its program again."""

    def apply(self, candidate: Candidate) -> s_tir.Schedule:
        """The program of a candidate.

        Raises:
            ScheduleError: the candidate is of another task, rule or space version, or not legal.
        """


@dataclass(frozen=True)
class Exported:
    """The counts of an export.

    Attributes:
        written: records of ours in the database.
        foreign: records of other programs in it.
        left_out: numbers of the others, by reason.
    """

    written: int
    foreign: int
    left_out: Mapping[str, int]


@dataclass(frozen=True)
class Imported:
    """The records of an imported database.

    Attributes:
        records: ours.
        foreign: those of other programs.
        left_out: numbers of records of ours that cannot be taken, by reason.
        refused: of records whose times no program has, one line; "" where there are none.
    """

    records: tuple[Record, ...]
    foreign: tuple[ForeignRecord, ...]
    left_out: Mapping[str, int]
    refused: str = ""


def export_database(
    records: Iterable[Record],
    foreign: Iterable[ForeignRecord],
    spaces: Mapping[str, Space],
    folder: Path,
) -> Exported:
    """Write records as a database of MetaSchedule, both files whole or neither.

    Args:
        records: ours; of one device, since the database has no place for several.
        foreign: records of other programs, written as they came.
        spaces: design spaces on that device by workload hash; records of other tasks are left out.
        folder: made if it does not exist.

    Raises:
        UserError: the folder has a database already.
    """
    if any((folder / name).exists() for name in (WORKLOADS, RECORDS)):
        raise UserError(f"{folder} has a MetaSchedule database already: give another folder")
    folder.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".records", dir=folder))
    try:
        database = ms.database.JSONDatabase(work_dir=str(scratch))
        written, left_out = 0, Counter[str]()
        for record in records:
            try:
                _commit(database, record, _space_for(record, spaces))
            except ScheduleError as error:
                left_out[_kind(error)] += 1
            else:
                written += 1
        kept = 0
        for one in foreign:
            try:
                _commit_foreign(database, one)
            except _ERRORS:
                left_out["of MetaSchedule's own rules that are damaged"] += 1
            else:
                kept += 1
        for name in (WORKLOADS, RECORDS):
            (scratch / name).touch()
            (scratch / name).replace(folder / name)
    finally:
        shutil.rmtree(scratch)
    return Exported(written, kept, left_out)


def import_database(
    folder: Path,
    spaces: Mapping[str, Space],
    profile: Mapping[str, Any],
    hash_of: Callable[[tirx.PrimFunc], str],
) -> Imported:
    """Read a database of MetaSchedule.

    Args:
        folder: of its two files.
        spaces: design spaces by workload hash; a record of ours needs that of its task.
        profile: of the device that the spaces are for; a record of ours of another is left out.
        hash_of: the workload hash of a function without its name.

    Raises:
        UserError: no database there.
        EdgeError: a line is damaged; the message has its number.
    """
    for name in (WORKLOADS, RECORDS):
        if not (folder / name).is_file():
            raise UserError(f"{folder} has no {name}: give the folder of a MetaSchedule database")
    workloads = [_Workload(line, made, hash_of(_nameless(made))) for line, made in _workloads(folder)]
    records: list[Record] = []
    foreign: list[ForeignRecord] = []
    left_out = Counter[str]()
    refused = Refused()
    for workload, content, made in _tuning_records(folder, workloads, refused):
        try:
            record = _own(made, spaces, profile)
        except ScheduleError as error:
            left_out[_kind(error)] += 1
            continue
        if record is None:
            foreign.append(ForeignRecord(workload.task, workload.line, content, _median(made)))
        else:
            records.append(record)
    if refused.count and not (records or foreign or left_out):
        raise EdgeError(f"{folder / RECORDS}: {refused}: nothing was imported")
    return Imported(tuple(records), tuple(foreign), left_out, str(refused))


@dataclass(frozen=True, eq=False)
class _Workload:
    """A line of the file of tasks.

    Attributes:
        line: as it is.
        made: what MetaSchedule reads from it.
        task: our hash of the function.
    """

    line: str
    made: Any
    task: str


def _kind(error: ScheduleError) -> str:
    """The reason without what differs from record to record."""
    return str(error).partition(":")[0]


def _space_for(record: Record, spaces: Mapping[str, Space]) -> Space:
    space = spaces.get(record.candidate.workload_hash)
    if space is None:
        raise ScheduleError("of tasks that the model does not have on this device")
    return space


def _commit(database: Any, record: Record, space: Space) -> None:
    """Add one of our records.

    Raises:
        ScheduleError: the space cannot make the program.
    """
    if record.measurement.times_s and not record.measurement.trusted:
        raise ScheduleError(why_untrusted(record))
    if not space.traces(record.candidate):
        raise ScheduleError("of programs that MetaSchedule's traces do not give")
    schedule = _marked(space, record.candidate, _mark_of(record))
    module = _module(space)
    workload = database.commit_workload(module)
    target = dict(record.profile["target"])
    if target.get("kind") == "llvm":
        # What a search with as many threads is given.
        target["num-cores"] = record.profile["threads"]
    database.commit_tuning_record(
        ms.database.TuningRecord(
            schedule.trace,
            workload,
            list(record.measurement.times_s) or [_FAILED_S],
            tvm.target.Target(target),
            ms.arg_info.ArgInfo.from_entry_func(module),
        )
    )


def _module(space: Space) -> tvm.IRModule:
    return tvm.IRModule({"main": space.task.function})


def _commit_foreign(database: Any, one: ForeignRecord) -> None:
    workload = ms.database.Workload.from_json(json.loads(one.workload))
    kept = database.commit_workload(workload.mod)
    database.commit_tuning_record(ms.database.TuningRecord.from_json(json.loads(one.content), kept))


def _marked(space: Space, candidate: Candidate, mark: str) -> s_tir.Schedule:
    """The program of a candidate, its trace with a mark at the end.

    Raises:
        ScheduleError: the space cannot make it.
    """
    try:
        schedule = space.apply(candidate)
    except ScheduleError as error:
        raise ScheduleError(f"that their design space cannot make: {error}") from error
    root = schedule.get_sblock(space.task.function.body.block.name_hint)
    schedule.annotate(root, _MARK, mark)
    schedule.unannotate(root, _MARK)
    return schedule


def _mark_of(record: Record) -> str:
    """All of a record but its times, and of its profile the hash; in letters that every JSON writer keeps."""
    content = content_of(record)
    content["profile"] = record.profile_key
    del content["measurement"]["times_s"]
    packed = zlib.compress(json.dumps(content, sort_keys=True).encode(), level=9)
    return base64.b64encode(packed).decode()


def _own(made: Any, spaces: Mapping[str, Space], profile: Mapping[str, Any]) -> Record | None:
    """A tuning record as one of ours; None if it has no mark, or not the trace that the mark promises.

    Raises:
        ScheduleError: it is ours, and the spaces or the profile are not its own.
    """
    mark = _mark_in(made.trace)
    if mark is None:
        return None
    try:
        content = strict_json.parse(_unpacked(mark), LIMITS.records.line_bytes, "the mark")
        of_profile, content["profile"] = content["profile"], dict(profile)
        content["measurement"]["times_s"] = [] if content["failure"] else _seconds(made)
        record = record_of(json.dumps(content))
        check_foreign(record)
    except (ValueError, LookupError, TypeError, zlib.error):
        return None
    space = _space_for(record, spaces)
    if of_profile != key_of(dict(profile)):
        raise ScheduleError("of another device or number of threads")
    trace = _marked(space, record.candidate, mark).trace
    return record if tvm_ffi.structural_equal(trace.as_json(), made.trace.as_json()) else None


def _unpacked(mark: str) -> bytes:
    """The content of a mark; a few bytes of it may expand to gigabytes.

    Raises:
        ValueError: it is longer than a record.
    """
    stream = zlib.decompressobj()
    data = stream.decompress(base64.b64decode(mark, validate=True), LIMITS.records.line_bytes)
    if not stream.eof:
        raise ValueError("the mark is longer than a record, or cut off")
    return data


def _mark_in(trace: Any) -> str | None:
    for instruction in trace.insts:
        if instruction.kind.name == "Annotate" and str(instruction.attrs[0]) == _MARK:
            return str(instruction.inputs[1])
    return None


def _seconds(made: Any) -> list[float]:
    return [float(seconds) for seconds in made.run_secs or ()]


def _median(made: Any) -> float | None:
    seconds = _seconds(made)
    return median(seconds) if seconds and median(seconds) < _FAILED_FROM_S else None


def _nameless(workload: Any) -> tirx.PrimFunc:
    """The only function of a workload without what names it."""
    (function,) = workload.mod.functions.values()
    for name in _NAMES:
        function = function.without_attr(name)
    return function


def _workloads(folder: Path) -> Iterator[tuple[str, Any]]:
    with (folder / WORKLOADS).open("rb") as file:
        for number, line in bounded_lines(file):
            try:
                made = ms.database.Workload.from_json(_parsed(line))
                _nameless(made)
            except _ERRORS as error:
                raise _damaged(folder / WORKLOADS, number, error) from error
            yield (line or b"").decode().strip(), made


def _tuning_records(
    folder: Path, workloads: list[_Workload], refused: Refused
) -> Iterator[tuple[_Workload, str, Any]]:
    with (folder / RECORDS).open("rb") as file:
        for number, line in bounded_lines(file):
            try:
                index, content = _parsed(line)
                if type(index) is not int or not 0 <= index < len(workloads):
                    raise ValueError(f"there is no task {index}")
                made = ms.database.TuningRecord.from_json(content, workloads[index].made)
                _check_times(_seconds(made))
            except Implausible as error:
                refused.add(number, error)
                continue
            except _ERRORS as error:
                raise _damaged(folder / RECORDS, number, error) from error
            yield workloads[index], json.dumps(content), made


def _parsed(line: bytes | None) -> Any:
    if line is None:
        raise ValueError(f"longer than {LIMITS.records.line_bytes} bytes")
    # Not by the strict rules: the format's own writer has no others for a time that is none.
    return json.loads(line.decode("utf-8"))


def _check_times(seconds: list[float]) -> None:
    """Refuse times that no program has; a failure has MetaSchedule's own, which is beyond all of them."""
    if len(seconds) > LIMITS.records.times:
        raise Implausible(f"{len(seconds)} times, at most {LIMITS.records.times} are taken")
    for one in seconds:
        if not (is_time(one) or _FAILED_FROM_S <= one < math.inf):
            raise Implausible(f"a time of {one:g} s, which no program has")


def _damaged(path: Path, number: int, error: Exception) -> EdgeError:
    # TVM's errors begin with a trace of its own.
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return EdgeError(f"{path}, line {number} is damaged ({printable(lines[-1], 200)}): nothing was imported")
