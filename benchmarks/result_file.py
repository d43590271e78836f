"""The file that a benchmark writes: its figures under a heading that says how they were made.

The heading is the same for every benchmark. `schema` and all other fields belong to the benchmark.

    benchmark   "edgetlm.benchmark/1", the version of this heading
    schema      that of the figures, for example "edgetlm.e2e/1"
    command     the command line
    date        when the benchmark started, UTC, ISO 8601
    commit      of the working tree, with "+" where files differed from it; null outside of a checkout
    machine     cpu, cores, memory_bytes, system, state, versions
    remark      optional: what a reader has to know about this run
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from device_agent.contract.fields import Fields
from device_agent.contract.strict_json import parse
from host.errors import UserError
from host.files import write_whole
from sdk.text import data_without_host_paths

HEADING = "edgetlm.benchmark/1"
ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
_MAX_BYTES = 64 << 20
_HEADING_FIELDS = ("benchmark", "schema", "command", "date", "commit", "machine", "remark")
_COMMIT = re.compile(r"[0-9a-f]{40}\+?")
_SCHEMA = re.compile(r"edgetlm\.[a-z_0-9]+/[0-9]+")
# Words of a command that say how far it goes, and not what it measures.
_PROGRESS = re.compile(r" --resume(?= |$)| --minutes[ =]\S+")


@dataclass(frozen=True, eq=False)
class Result:
    """A result file that was read and checked.

    Attributes:
        schema: of the figures.
        command: that made them.
        date: when it started.
        commit: of the working tree, with "+" where files differed from it; "" outside of a checkout.
        cpu: the processor.
        cores: of the machine.
        versions: of the software, by name.
        remark: what a reader has to know about this run; "" for nothing.
        figures: everything else in the file.
    """

    schema: str
    command: str
    date: datetime
    commit: str
    cpu: str
    cores: int
    versions: Mapping[str, str]
    remark: str
    figures: Mapping[str, Any]


def heading(module: str, schema: str, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """The heading of a result that is about to be made.

    Args:
        module: of the benchmark, as `python -m` takes it.
        schema: of its figures.
        arguments: of its command line; those of this process if None.
    """
    from host.transport import connect
    from research.machine import machine_of

    words = sys.argv[1:] if arguments is None else arguments
    with connect("local") as device:
        machine = machine_of(device)
    return {
        "benchmark": HEADING,
        "schema": schema,
        "command": shlex.join(["python", "-m", module, *words]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine,
    }


def commit() -> str | None:
    """The commit of the working tree, with "+" where files differ from it; None outside of a checkout."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout

    # Installed from a wheel, this file may lie below somebody else's checkout.
    if not (ROOT / ".git").exists():
        return None
    try:
        # A result that another benchmark has just written does not change this one.
        changed = git("status", "--porcelain", "--", ".", f":!{RESULTS.relative_to(ROOT)}").strip()
        return git("rev-parse", "HEAD").strip() + "+" * bool(changed)
    except (OSError, subprocess.CalledProcessError):
        return None


def add_json_option(parser: argparse.ArgumentParser, *names: str, required: bool = False) -> None:
    """Give a command line the option that names the result file; `names` are further spellings."""
    parser.add_argument(
        *names, "--json", dest="json", type=Path, required=required, help="where the figures go"
    )


def write_result(path: Path | None, content: Mapping[str, Any]) -> None:
    """Write a heading and figures, whole or not at all, without paths of this machine.

    Nothing is written where no file was asked for.
    """
    if path is not None:
        content = data_without_host_paths(content)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, f"{json.dumps(content, indent=1)}\n".encode())


def read_result(path: Path) -> Result:
    """Read a result file.

    Raises:
        UserError: the file cannot be read, or a field of its heading is missing or wrong.
    """
    try:
        content = parse(path.read_bytes(), _MAX_BYTES, str(path))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is no result of a benchmark: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} is no result of a benchmark: it holds no object")
    fields = Fields(content, lambda reason: UserError(f"{path} is no result of a benchmark: {reason}"))
    if fields.text("benchmark") != HEADING:
        raise UserError(f"{path} has a heading of {content['benchmark']!r}; this version reads {HEADING!r}")
    described = fields.object("machine")
    found = described.object("versions")
    return Result(
        schema=_matching(fields, "schema", _SCHEMA),
        command=fields.text("command"),
        date=_date(fields),
        commit=_matching(fields, "commit", _COMMIT) if fields.has("commit") else "",
        cpu=described.name("cpu"),
        cores=described.whole("cores", 1, 1 << 16),
        versions={name: found.text(name) for name in found.values},
        remark=fields.text("remark", standard=""),
        figures={name: value for name, value in content.items() if name not in _HEADING_FIELDS},
    )


def models_so_far(path: Path | None, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The models of a result that was not finished, see `figures_so_far`."""
    return dict(figures_so_far(path, wanted).get("models", {}))


def figures_so_far(path: Path | None, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
    """The figures of a result that was not finished; none where it is of another command or commit.

    A command that goes on is the same as the one that began.

    Args:
        path: of the result.
        wanted: the heading of the result to make.
    """
    if path is None or not path.is_file():
        return {}
    found = read_result(path)
    # A written command has no paths of the machine.
    command = data_without_host_paths(wanted["command"])
    is_same = _PROGRESS.sub("", found.command) == _PROGRESS.sub("", command)
    return found.figures if is_same and found.commit == (wanted["commit"] or "") else {}


def _matching(fields: Fields, name: str, pattern: re.Pattern[str]) -> str:
    value = fields.text(name)
    if not pattern.fullmatch(value):
        raise fields.wrong(name, f"of the form {pattern.pattern}")
    return value


def _date(fields: Fields) -> datetime:
    try:
        date = datetime.fromisoformat(fields.text("date"))
    except ValueError:
        date = datetime.min
    if date.tzinfo is None:
        raise fields.wrong("date", "a date and time with a time zone, as ISO 8601")
    return date
