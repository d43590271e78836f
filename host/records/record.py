"""One measurement as plain data: the lines of an exported file, and what the database keeps of it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from device_agent.contract import strict_json
from device_agent.contract.limits import LIMITS
from device_agent.contract.text import printable
from host.errors import EdgeError
from host.model import Candidate, DeviceProfile, Energy, Measurement
from host.records.checks import Implausible, check, check_foreign, identifier, name
from host.records.origin import MODEL, RecordOrigin
from targets import Board

SCHEMA = "edgetlm.record/2"
# Without `failure`: every record of it was measured.
_SCHEMA_1 = "edgetlm.record/1"
# Why a measurement says nothing any more: its epoch was marked (`host.records.epochs`).
DRIFTED = "the times of its board have drifted since"
# Errors of pydantic's about values beyond their bounds; all others are about what is no record at all.
_BEYOND = {
    "finite_number",
    "greater_than_equal",
    "less_than_equal",
    "string_too_long",
    "too_long",
    "value_error",
}
_MAX_VERSIONS = 1 << 31
# The whole output of a compiler is too long for a reason.
_REASON_CHARACTERS = 4000


@dataclass(frozen=True)
class Record:
    """One measurement of one candidate on one device, or why it cannot be measured there.

    Attributes:
        candidate: the program, with its task's hash and who proposed it.
        profile: the device's profile in plain data (`profile_data`).
        measurement: times, energy and the device's state before and after; without times where it failed.
        made_at: UTC time in ISO format.
        origin: what asked for it.
        failure: why it does not build or run; empty where it was measured.
    """

    candidate: Candidate
    profile: dict[str, Any]
    measurement: Measurement
    made_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat())
    origin: RecordOrigin = field(default_factory=RecordOrigin)
    failure: str = ""

    @classmethod
    def failed(
        cls,
        candidate: Candidate,
        profile: Mapping[str, Any],
        failure: str,
        origin: RecordOrigin | None = None,
    ) -> Record:
        """The record of a candidate that does not build or run, so that it is not tried again."""
        nothing = Measurement(
            (), Energy("unavailable", None, None, "not measured"), {}, {}, profile["threads"]
        )
        reason = printable(failure, _REASON_CHARACTERS) or "it says no reason"
        return cls(candidate, dict(profile), nothing, origin=origin or RecordOrigin(), failure=reason)

    @cached_property
    def profile_key(self) -> str:
        """Hash of the device profile: records of equal profiles may be compared."""
        return key_of(self.profile)

    @cached_property
    def candidate_key(self) -> str:
        """Hash of the program, whoever proposed it."""
        candidate = self.candidate
        decisions = [[name, value] for name, value in candidate.decisions]
        return key_of([candidate.workload_hash, candidate.rule, decisions, candidate.space_version])

    @property
    def record_key(self) -> str:
        """Hash of who measured what, where, when and with which result: equal records are one record."""
        return key_of(
            [
                self.candidate_key,
                self.candidate.proposer,
                self.profile_key,
                self.made_at,
                list(self.measurement.times_s),
                self.failure,
            ]
        )

    @property
    def median_s(self) -> float | None:
        """Median seconds of one call, where they show what the program can do.

        None where it failed, and where the device throttled or has drifted since: nothing compares with such
        times or learns.
        """
        known = self.measurement.times_s and self.measurement.trusted
        return self.measurement.median_s if known else None


def invalidated(record: Record) -> Record:
    """A record whose times do not count any more, as it is read from the store and written to files."""
    if not record.measurement.times_s:
        return record
    return replace(record, measurement=replace(record.measurement, invalid=DRIFTED))


# Of the hardware, what a board's measurements teach, and what older versions did not name.
_LATER = (
    "learned",
    "fetch_cycles",
    "loop_cycles",
    "bfloat16",
    "byte_tables",
    "half_arithmetic",
    "byte_matrices",
    "weights_level",
    "matrix_tiles",
)
# The same of its GPU. Where it is not zero, rules are others, and so are records.
_LATER_OF_GPU = "matrix_half_sums_per_cycle"


# Of profiles of several threads: raised when the same decisions become other programs for several threads and
# the same ones for one, as raising the version of a rule would make records of one thread old too. 2: threads
# share bands of rows (rules `tiled` and `dot`).
SHARED_PROGRAMS = 2


def why_untrusted(record: Record) -> str:
    """Of a record whose times do not count, which that is, as the end of "records"."""
    if record.measurement.invalid == DRIFTED:
        return "of a board that has drifted since"
    return "that a throttled device measured"


def profile_data(profile: DeviceProfile) -> dict[str, Any]:
    """The part of a profile that decides how fast a program is, without the user's name for the device."""
    board = profile.board
    content = {
        "board": board.name,
        "target": _target_data(board),
        # As the board declares it: neither a new calibration nor what its measurements teach changes a
        # program, and no record becomes foreign.
        "hardware": _hardware_data(board),
        "threads": profile.threads,
    }
    if profile.threads > 1:
        content["shared_programs"] = SHARED_PROGRAMS
    # As it comes back from the database: lists, no tuples.
    plain: dict[str, Any] = json.loads(json.dumps(content))
    return plain


def _hardware_data(board: Board) -> dict[str, Any]:
    """The hardware without what older versions did not name."""
    found = {k: v for k, v in asdict(board.hardware).items() if k not in _LATER}
    if found["gpu"] and not found["gpu"][_LATER_OF_GPU]:
        del found["gpu"][_LATER_OF_GPU]
    return found


def _target_data(board: Board) -> dict[str, Any]:
    """The target without what older versions did not name: products of bfloat16 numbers, tables, tiles.

    Functions with such operations are others than those without: what it makes of a function follows from the
    function, and records from before belong to the same profile.
    """
    target, hardware = dict(board.tvm_target), board.hardware
    later = {f"+{hardware.byte_tables}"} | ({f"+{hardware.bfloat16.feature}"} if hardware.bfloat16 else set())
    later |= {f"+{name}" for name in hardware.matrix_tiles.features} if hardware.matrix_tiles else set()
    named = cast("list[str]", target.get("mattr", []))
    if later & set(named):
        target["mattr"] = [name for name in named if name not in later]
    return target


def key_of(content: Any) -> str:
    """SHA-256 of plain data."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def content_of(record: Record) -> dict[str, Any]:
    """A record as plain data."""
    candidate, measurement = _fields(record.candidate), _fields(record.measurement)
    # JSON has no NaN: an estimate that the proposer did not make is null.
    if math.isnan(record.candidate.estimate_s):
        candidate["estimate_s"] = None
    measurement["energy"] = _fields(record.measurement.energy)
    parts = {"candidate": candidate, "measurement": measurement, "origin": record.origin.data()}
    return {"schema": SCHEMA, **_fields(record), **parts}


def _fields(part: Candidate | Measurement | Energy | Record) -> dict[str, Any]:
    """The fields of one dataclass; what they hold is not copied, which takes most of a writer's time."""
    return {one.name: getattr(part, one.name) for one in fields(part)}


def line_of(record: Record) -> str:
    """A record as one line of JSON.

    Raises:
        EdgeError: it holds something that JSON has no form for.
    """
    try:
        return json.dumps(content_of(record), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        task = record.candidate.workload_hash
        raise EdgeError(f"a record of task {task} cannot be written as JSON: {error}") from error


def record_of(line: str) -> Record:
    """Read a record back from its line of JSON.

    Raises:
        Implausible: it says what no measurement says.
        ValueError: it is no record of a known schema; the message is one line.
    """
    if not isinstance(line, str) or len(line) > LIMITS.records.line_bytes:
        raise ValueError(f"no text of at most {LIMITS.records.line_bytes} characters")
    try:
        part = RecordLine.model_validate_json(line)
    except ValidationError as error:
        beyond = {one["type"] for one in error.errors(include_url=False, include_input=False)} & _BEYOND
        raise (Implausible if beyond else ValueError)(_first(error)) from error
    if bool(part.failure) == bool(part.measurement.times_s):
        raise ValueError("a record has either times or a failure")
    candidate = part.candidate.model_dump()
    if candidate["estimate_s"] is None:
        candidate["estimate_s"] = math.nan
    record = Record(
        candidate=Candidate(**candidate),
        profile=part.profile,
        measurement=Measurement(**dict(part.measurement)),
        made_at=part.made_at,
        origin=RecordOrigin.read(part.origin),
        failure=part.failure,
    )
    check(record)
    return record


def record_from_elsewhere(line: bytes) -> Record:
    """Read a record that is not trusted: by the strict rules, with its date in the past.

    Raises:
        Implausible: it says what no measurement says.
        ValueError: it is no record of a known schema; the message is one line.
    """
    record = record_of(line.decode("utf-8"))
    strict_json.parse(line, LIMITS.records.line_bytes, "the line")
    check_foreign(record)
    return record


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(step) for step in first["loc"])
    return printable(f"{place}: {first['msg']}" if place else first["msg"])


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


_Hash = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(identifier)]
_Name = Annotated[str, AfterValidator(name)]
_Text = Annotated[str, Field(max_length=LIMITS.records.text_characters)]
_Value = Annotated[int, Field(ge=-LIMITS.records.decision_value, le=LIMITS.records.decision_value)]
_Values = Annotated[tuple[_Value, ...], Field(max_length=LIMITS.records.decision_values)]
_Decisions = Annotated[tuple[tuple[_Name, _Value | _Values], ...], Field(max_length=LIMITS.records.decisions)]


class _CandidatePart(_Part):
    workload_hash: _Hash
    rule: _Name
    decisions: _Decisions
    proposer: _Name
    estimate_s: Annotated[float, Field(allow_inf_nan=False)] | None
    space_version: Annotated[int, Field(ge=0, le=_MAX_VERSIONS)]


class _MeasurementPart(_Part):
    times_s: tuple[float, ...]
    energy: Energy
    state_before: dict[str, Any]
    state_after: dict[str, Any]
    threads: int
    throttled: bool = False
    throttle_reasons: tuple[_Text, ...] = ()
    invalid: _Text = ""
    conditions: dict[str, Any] = {}
    instructions: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


class RecordLine(_Part):
    """A record as a line of JSON: a program that was measured, or that failed, on a board."""

    version: Annotated[str, Field(alias="schema", pattern=f"^({_SCHEMA_1}|{SCHEMA})$")]
    candidate: _CandidatePart
    profile: dict[str, Any]
    measurement: _MeasurementPart
    made_at: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d", max_length=40)]
    origin: dict[str, Any]
    failure: _Text = ""


def of_one_kind(records: Iterable[Record]) -> list[Record]:
    """Records whose times can be compared: inside of a model if there are any, else of kernels alone.

    A kernel by itself finds more of its operands in the caches. Programs that failed are of both kinds.
    """
    every = list(records)
    inside = any(one.origin.measured_in == MODEL and not one.failure for one in every)
    kind = MODEL if inside else None
    return [one for one in every if one.failure or one.origin.measured_in == kind]
