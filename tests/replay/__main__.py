"""Command line of the process replay: record, compare, against, check, update. See docs/process-replay.md."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.replay import base, recorder
from tests.replay.compare import Comparison, compare, unversioned
from tests.replay.recorder import ReplayError
from tests.replay.subjects import SETS
from tests.replay.texts import TextStore
from tests.replay.unit import OF_THE_MACHINE

COMMITTED = Path(__file__).resolve().parent / "small.jsonl"
CACHE = recorder.ROOT / ".cache" / "replay"
SCHEMA = "edgetlm.replay/1"


def main(arguments: list[str] | None = None) -> int:
    """Exit codes: 0 the same or done, 1 a difference, 2 it could not be found out."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
        return code
    except ReplayError as error:
        sys.stderr.write(f"replay: {error}\n")
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.replay", description=__doc__)
    commands = parser.add_subparsers(required=True)
    record = commands.add_parser("record", help="write the hashes of this checkout")
    record.add_argument("--out", type=Path, required=True)
    record.add_argument("--resume", action="store_true", help="go on where an interrupted recording ended")
    record.add_argument("--fresh", action="store_true", help="compile objects that are known, too")
    record.set_defaults(run=_record)
    two = commands.add_parser("compare", help="print how two recordings differ")
    two.add_argument("old", type=Path)
    two.add_argument("new", type=Path)
    two.set_defaults(run=_compare)
    against = commands.add_parser("against", help="compare the working tree, or a commit, with a commit")
    against.add_argument("--base", default="HEAD~1", help="the commit")
    against.add_argument("--head", help="the later commit, in place of the working tree")
    against.add_argument("--json", type=Path, help="file of the result, like those of benchmarks")
    against.set_defaults(run=_against)
    check = commands.add_parser("check", help=f"compare the small set with {COMMITTED.name}")
    check.set_defaults(run=_check)
    update = commands.add_parser("update", help=f"rewrite {COMMITTED.name}")
    update.add_argument(
        "--same-version",
        nargs="+",
        default=[],
        metavar="RULE",
        help="rules whose changed programs take the time that they took",
    )
    update.set_defaults(run=_update)
    for command in (record, against):
        command.add_argument("--set", default="small" if command is record else "full", choices=SETS)
        command.add_argument("--only", default="", help="part of the subjects' names")
    for command in (record, against, check, update):
        command.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    for command in (two, against, check):
        command.add_argument("--show", type=int, default=3, help="texts to show of every stage")
    for command in (record, two, against, check, update):
        command.add_argument("--cache", type=Path, default=CACHE, help="folder of texts and recordings")
    return parser


def _record(options: argparse.Namespace) -> int:
    start = time.monotonic()
    found = recorder.make(
        options.set, options.out, options.cache, options.jobs, options.resume, options.fresh, options.only
    )
    subjects = len({(line["subject"], line["target"]) for line in found})
    failed = sum("failed" in line for line in found)
    sys.stdout.write(
        f"{options.out}: {subjects} subjects on their targets, {len(found)} lines, {failed} not compiled, "
        f"{time.monotonic() - start:.0f} s\n"
    )
    return 0


def _compare(options: argparse.Namespace) -> int:
    return _print(options.old, options.new, options)


def _print(old: Path, new: Path, options: argparse.Namespace) -> int:
    return _shown(compare(old, new, options.cache, options.show))


def _shown(found: Comparison) -> int:
    sys.stdout.write(found.text)
    return 1 if found.differences else 0


def _against(options: argparse.Namespace) -> int:
    # A commit from before the benchmarks runs this file, too.
    from benchmarks.result_file import heading, write_result

    about = heading("tests.replay", SCHEMA)
    commit = base.commit_of(options.base)
    head = base.commit_of(options.head) if options.head else None
    old = base.record_commit(commit, options.set, options.cache, options.jobs, options.only)
    if head:
        new = base.record_commit(head, options.set, options.cache, options.jobs, options.only)
    else:
        new = _record_tree(options)
    found = compare(old, new, options.cache, options.show)
    chosen = {"set": options.set, "only": options.only, "base": commit}
    chosen |= {"head": head} if head else {}
    write_result(options.json, {**about, **chosen, **found.figures()})
    return _shown(found)


def _record_tree(options: argparse.Namespace) -> Path:
    """The recording of the working tree; one without changes is that of its commit."""
    clean = base.is_clean()
    commit = base.commit_of("HEAD") if clean else "tree"
    out = base.recording_for(commit, options.set, options.cache, options.only)
    if not clean or not out.is_file():
        recorder.make(options.set, out, options.cache, options.jobs, resume=False, only=options.only)
    return out


def _check(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="edgetlm-replay-") as folder:
        new = Path(folder, "small.jsonl")
        recorder.make("small", new, options.cache, options.jobs, resume=False)
        code = _print(COMMITTED, new, options)
        sys.stdout.write(_unversioned_text(new))
    if code:
        sys.stdout.write(
            "programs changed. If that is meant, run `python -m tests.replay update` and commit "
            f"{COMMITTED.relative_to(recorder.ROOT)} with the change\n"
        )
    return code


def _unversioned_text(made: Path, allowed: Sequence[str] = ()) -> str:
    """A line for each rule whose programs changed and whose version did not; "" where there is none.

    Args:
        made: a recording of the small set.
        allowed: rules that are left out.
    """
    found = unversioned(recorder.read(COMMITTED)[1], recorder.read(made)[1])
    return "".join(
        f"rule {rule}: the same decisions are other programs in the same version ({places[0]}), and records "
        "of the programs before would count. Raise its version, or SHARED_PROGRAMS of host/records/record.py "
        "where programs of one thread stay; where all times stay, update with --same-version " + rule + "\n"
        for rule, places in found.items()
        if rule not in allowed
    )


def _update(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="edgetlm-replay-") as folder:
        made = Path(folder, "small.jsonl")
        recorder.make("small", made, options.cache, options.jobs, resume=False)
        header, lines = recorder.read(made)
        if left := _unversioned_text(made, options.same_version):
            raise ReplayError(left.rstrip())
    store = TextStore(options.cache / "texts")
    # Numbers of one machine are no other's, and a change of them would be lost in the noise.
    header["machine"] = "any"
    for line in lines:
        line["stages"] = {k: v for k, v in line["stages"].items() if k not in OF_THE_MACHINE}
        # What others call or read is short, and a fresh clone is to show how it changed.
        if "text" in line["stages"]:
            line["content"] = store.get(line["stages"]["text"])
    COMMITTED.write_text(recorder.lines_text([header, *lines]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
