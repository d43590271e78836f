"""Two recordings beside each other: what differs, at which stage first, and how the texts differ."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.replay.recorder import ReplayError, read
from tests.replay.texts import TextStore
from tests.replay.unit import OF_THE_MACHINE, STAGES, TARGET, Line

# Of a function whose loops all changed, so many lines show how.
_LINES_OF_A_DIFF = 60
_LISTED = 40
_ONLY_OLD, _ONLY_NEW = "only in the old recording", "only in the new recording"

Key = tuple[str, str, str]


@dataclass(frozen=True)
class Difference:
    """One thing that two recordings have differently.

    Attributes:
        key: subject, target and kernel.
        stage: the first that differs; "" where only one recording has the thing.
        old, new: hashes at that stage.
        later: further stages that differ.
        remark: which recording has it, where one has.
    """

    key: Key
    stage: str
    old: str = ""
    new: str = ""
    later: tuple[str, ...] = ()
    remark: str = ""

    @property
    def title(self) -> str:
        """One line."""
        where = _where(self.key)
        if self.remark:
            return f"{where}: {self.remark}"
        return f"{where}: {self.stage}" + (f" (then {', '.join(self.later)})" if self.later else "")


def differences(
    old: Sequence[Line], new: Sequence[Line], ignored: frozenset[str] = frozenset()
) -> list[Difference]:
    """What differs, in order of the stage at which it begins.

    Args:
        old, new: lines of two recordings.
        ignored: stages that are not compared.
    """
    before, after = _by_key(old), _by_key(new)
    found = []
    for key in dict.fromkeys((*before, *after)):
        if key not in after or key not in before:
            found.append(Difference(key, "", remark=_ONLY_OLD if key in before else _ONLY_NEW))
            continue
        one, two = before[key], after[key]
        stages = [s for s in STAGES if s not in ignored and one.get(s) != two.get(s)]
        if stages:
            first = stages[0]
            found.append(Difference(key, first, one.get(first, ""), two.get(first, ""), tuple(stages[1:])))
    return sorted(found, key=lambda one: STAGES.index(one.stage) if one.stage else -1)


def unversioned(old: Sequence[Line], new: Sequence[Line]) -> dict[str, list[str]]:
    """Rules of which the same decisions are another program in the same version, and where that shows.

    The records of such decisions would count on, with the times of the program that was.

    Args:
        old, new: lines of two recordings. Other functions, and targets with other figures, are not compared.
    """
    before, after = _programs(old), _programs(new)
    found: dict[str, list[str]] = {}
    for (key, space), programs in after.items():
        known = before.get((key, space), {})
        if any(known.get(decisions, made) != made for decisions, made in programs.items()):
            rule, *_ = space
            found.setdefault(rule, []).append(_where(key))
    return found


def _programs(lines: Sequence[Line]) -> dict[tuple[Key, tuple[str, ...]], Mapping[str, str]]:
    """The programs of each kernel by their decisions, under the kernel and what else decides them."""
    figures = {line["target"]: line["stages"]["target"] for line in lines if "target" in line["stages"]}
    return {
        (
            _key(line),
            (
                line["says"]["rule"],
                str(line["version"]),
                line["stages"]["lowered"],
                figures.get(line["target"], ""),
            ),
        ): line["programs"]
        for line in lines
        if "programs" in line
    }


def _by_key(lines: Sequence[Line]) -> dict[Key, Mapping[str, str]]:
    return {_key(line): line["stages"] for line in lines}


def _key(line: Line) -> Key:
    return (line["subject"], line["target"], line["kernel"])


def _where(key: Key) -> str:
    subject, target, kernel = key
    return subject + (f" on {target}" if target else "") + (f", {kernel}" if kernel else "")


def report(found: Sequence[Difference], store: TextStore, shown: int) -> str:
    """Differences as text: how many begin at which stage, a list, and the first texts of each stage.

    Args:
        found: in order.
        store: where texts lie.
        shown: texts to show of every stage.
    """
    counts = Counter(one.stage or one.remark for one in found)
    lines = [f"{number} differ first in {stage}" for stage, number in counts.items() if stage in STAGES]
    lines += [f"{number} {what}" for what, number in counts.items() if what not in STAGES]
    lines += [f"  {one.title}" for one in found[:_LISTED]]
    if len(found) > _LISTED:
        lines.append(f"  and {len(found) - _LISTED} more")
    left = Counter[str]()
    seen = set[tuple[str, str]]()
    for one in found:
        if not one.stage or left[one.stage] >= shown or (one.old, one.new) in seen:
            continue
        left[one.stage] += 1
        # The same change in one function of several models is shown once.
        seen.add((one.old, one.new))
        lines += ["", f"--- {one.title}", *_diff(store.get(one.old), store.get(one.new))]
    return "\n".join(lines) + "\n"


def _diff(old: str | None, new: str | None) -> list[str]:
    if old is None and new is None:
        return ["(bytes, of which only hashes are kept; or texts recorded elsewhere)"]
    if old is None or new is None:
        side = "old" if old is None else "new"
        return [f"(the {side} text was recorded elsewhere: `make replay` records both sides here)"]
    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), "old", "new", lineterm="", n=3))
    more = len(lines) - _LINES_OF_A_DIFF
    return lines[:_LINES_OF_A_DIFF] + ([f"... {more} more lines"] if more > 0 else [])


@dataclass(frozen=True)
class Comparison:
    """Two recordings that were compared.

    Attributes:
        text: for a reader.
        differences: in order of the stage at which they begin.
        lines: of the new recording.
    """

    text: str
    differences: tuple[Difference, ...]
    lines: tuple[Line, ...]

    def figures(self) -> dict[str, Any]:
        """What was compared, and how much differs first in which stage, for a result file."""
        models = [line for line in self.lines if line["target"] and line["subject"] != TARGET]
        return {
            "lines": len(self.lines),
            "targets": len({line["target"] for line in models}),
            "models_on_targets": sum(not line["kernel"] for line in models),
            "kernels": sum(bool(line["kernel"]) for line in models),
            "bundles": sum("manifest" in line["stages"] for line in self.lines),
            "not_compiled": sum("failed" in line for line in self.lines),
            "differences": dict(Counter(one.stage or one.remark for one in self.differences)),
        }


def compare(old: Path, new: Path, cache: Path, shown: int = 3) -> Comparison:
    """Compare two recordings.

    Numbers of another machine are not compared with those of this one.

    Raises:
        ReplayError: a file is no recording, or they are of different sets.
    """
    (first, before), (second, after) = read(old), read(new)
    if first["set"] != second["set"]:
        raise ReplayError(f"{old} is of the set {first['set']}, {new} of {second['set']}: record the same")
    remarks = ""
    if first["versions"] != second["versions"]:
        changed = sorted(k for k in second["versions"] if first["versions"].get(k) != second["versions"][k])
        remarks = f"recorded with other versions of {', '.join(changed)}\n"
    same_machine = first["machine"] == second["machine"]
    found = differences(before, after, frozenset() if same_machine else OF_THE_MACHINE)
    failed = [line for line in after if "failed" in line]
    remarks += "".join(f"not compiled: {_name(line)}: {line['failed']}\n" for line in failed)
    if not found:
        return Comparison(f"{remarks}no difference in {len(after)} lines\n", (), tuple(after))
    store = TextStore(cache / "texts")
    for line in (*before, *after):
        if "content" in line:
            store.keep(line["content"])
    return Comparison(remarks + report(found, store, shown), tuple(found), tuple(after))


def _name(line: Line) -> str:
    return " ".join(part for part in (line["subject"], line["target"], line["kernel"]) if part)
