"""The file of measured programs: JSON lines, one a program, appended to as they are measured."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from host.errors import UserError
from host.schedules.families import rule_versions


@dataclass(frozen=True)
class MeasuredProgram:
    """One program of a task.

    Attributes:
        model: file that the task is from, without its ending.
        task: workload hash.
        name: of the task.
        rule: of its design space.
        version: of the rule.
        decisions: value by decision.
        origin: who proposed it: "gensor", "neighbour" of Gensor's first program, "uniform", or "estimate" for
            the best of some random ones.
        times_s: seconds of one call, the median of each round.
        weight: calls of the kernel in one run of the model.
        estimated_s: parts of the estimate and their "total", see `DesignSpace.estimated`; None if unknown.
        first: whether the program is the one that is constructed without measuring.
    """

    model: str
    task: str
    name: str
    rule: str
    version: int
    decisions: dict[str, int]
    origin: str
    times_s: tuple[float, ...]
    weight: int = 1
    estimated_s: Mapping[str, float] | None = None
    first: bool = False

    @property
    def decided(self) -> frozenset[tuple[str, int]]:
        """What tells it from other programs of its task: its decisions, in whatever order they stand."""
        return frozenset(self.decisions.items())

    @property
    def seconds(self) -> float:
        """The shortest round: other work on the machine only adds time."""
        return min(self.times_s)


def read_programs(path: Path) -> Iterator[MeasuredProgram]:
    """The programs in a file; none if there is no file. A last line that was cut off is left out.

    Args:
        path: of the file; one whose name ends in `.gz` is compressed.
    """
    if not path.is_file():
        return
    with (
        gzip.open(path, "rt", encoding="utf-8")
        if is_compressed(path)
        else path.open(encoding="utf-8") as stream
    ):
        for line in stream:
            if not line.endswith("\n"):
                return
            content = json.loads(line)
            yield MeasuredProgram(**{**content, "times_s": tuple(content["times_s"])})


def current_programs(data: Path) -> list[MeasuredProgram]:
    """The programs of a file that their rules still make as they did.

    Raises:
        UserError: there is none.
    """
    versions = rule_versions()
    found = [one for one in read_programs(data) if one.version == versions.get(one.rule)]
    if not found:
        raise UserError(
            f"{data} has programs of older rules only: collect again with research.collection or "
            "research.modelled_boards"
        )
    return found


def is_compressed(path: Path) -> bool:
    """Whether a file is only read: nothing is appended to compressed data."""
    return path.suffix == ".gz"


def append_programs(path: Path, programs: Sequence[MeasuredProgram]) -> None:
    """Add programs at the end; a line that was cut off is completed by a line break first."""
    cut = path.is_file() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
    if cut:
        content = path.read_bytes()
        path.write_bytes(content[: content.rfind(b"\n") + 1])
    with path.open("a", encoding="utf-8") as stream:
        for program in programs:
            stream.write(json.dumps(asdict(program)) + "\n")
