"""Runs cases in worker processes, so that one that ends its process is a finding like others."""

from __future__ import annotations

import json
import mmap
import os
import resource
import select
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from tests.fuzz.case import LONGEST_S, MAX_BYTES, Case, Outcome, Target

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "edgetlm-out" / "fuzz"
# Of one case, before its worker is taken for hanging: more than any limit that the product keeps itself.
_HANGING_S = 240.0
_WAIT_S = 1.0


@dataclass
class Summary:
    """What came of many cases.

    Attributes:
        cases: number of them.
        outcomes: numbers by kind.
        violations: each with the case's name, what is wrong, and the command that repeats it.
        worst_s: the longest time of a case, and which.
        worst_bytes: the most memory of a case, and which.
        next_seed: where to go on.
    """

    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    violations: list[dict[str, str]] = field(default_factory=list)
    worst_s: tuple[float, str] = (0.0, "")
    worst_bytes: tuple[int, str] = (0, "")
    next_seed: int = 0

    def add(self, entry: dict[str, Any]) -> None:
        """One more case."""
        self.cases += 1
        self.outcomes[entry["kind"]] += 1
        self.worst_s = max(self.worst_s, (entry["seconds"], entry["name"]))
        self.worst_bytes = max(self.worst_bytes, (entry["memory_bytes"], entry["name"]))
        if entry["violation"]:
            self.violations.append({key: entry[key] for key in ("name", "violation", "repeat")})


@dataclass(frozen=True)
class Plan:
    """Which cases to run.

    Attributes:
        count: number of seeds.
        seed: the first one.
        jobs: processes at once.
        corpus: whether everything that was a fault once comes first.
        minutes: when to stop; 0 for at the end.
        kept: folder of what is found.
    """

    count: int
    seed: int = 0
    jobs: int = 1
    corpus: bool = True
    minutes: float = 0.0
    kept: Path = KEPT


def judged(target: Target, case: Case) -> tuple[Outcome, float]:
    """Run one case: how it ended, its violation, and its time in seconds."""
    began = time.monotonic()
    try:
        with _alarm(not target.apart):
            outcome = target.run(case)
    except Exception as error:  # noqa: BLE001 - what gets here is a finding
        frames = traceback.extract_tb(error.__traceback__)
        where = " < ".join(f"{Path(one.filename).name}:{one.lineno}" for one in reversed(frames[-4:]))
        outcome = Outcome("escaped", violation=f"{type(error).__name__}: {str(error)[:300]!a} ({where})")
    seconds = time.monotonic() - began
    # Over the bounds is allowed with a clear line about it.
    if not outcome.violation and outcome.kind == "ok":
        if seconds > LONGEST_S:
            outcome = replace(outcome, violation=f"{seconds:.0f} s without a word about it")
        elif outcome.memory_bytes > MAX_BYTES:
            outcome = replace(outcome, violation=f"{outcome.memory_bytes} bytes of memory")
    return outcome, seconds


@contextmanager
def _alarm(wanted: bool) -> Iterator[None]:
    def ring(number: int, frame: object) -> NoReturn:
        raise TimeoutError(f"over {LONGEST_S:.0f} s")

    if not wanted:
        yield
        return
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run(target: Target, plan: Plan, tell: Callable[[Summary], None] = lambda summary: None) -> Summary:
    """Run cases in processes apart.

    Args:
        target: not opened yet; each process opens it for itself.
        plan: which cases.
        tell: called about once a second.
    """
    summary = Summary(next_seed=plan.seed)
    ends = time.monotonic() + plan.minutes * 60 if plan.minutes else float("inf")
    workers = [_Worker(target, plan, share) for share in range(plan.jobs)]
    try:
        while workers and time.monotonic() < ends:
            ready = select.select([one.pipe for one in workers], [], [], _WAIT_S)[0]
            for worker in list(workers):
                found = worker.read() if worker.pipe in ready else worker.stalled()
                for entry in found:
                    summary.add(entry)
                if worker.ended:
                    workers.remove(worker)
            tell(summary)
    finally:
        summary.next_seed = min([plan.seed + plan.count, *(one.seed for one in workers)])
        for worker in workers:
            worker.end()
    return summary


class _Worker:
    """One process that runs a share of the cases; started anew where a case ends it."""

    def __init__(self, target: Target, plan: Plan, share: int) -> None:
        self._target, self._plan, self._share = target, plan, share
        # Which case is at work: a number of the corpus below zero, or a seed; and since when.
        self._state = mmap.mmap(-1, 16)
        self._corpus = len(target.corpus()) if plan.corpus else 0
        self._begin(-self._corpus + share if plan.corpus and self._corpus > share else plan.seed + share)

    @property
    def seed(self) -> int:
        """That it is at work on."""
        return max(self._plan.seed, self._at()[0])

    def _begin(self, at: int) -> None:
        self.ended = False
        self._set(at)
        receive, send = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(receive)
            _work(self._target, self._plan, self._following(at), self._set, send)
        os.close(send)
        self.pipe = receive
        self._rest = b""

    def _following(self, at: int) -> Iterator[int]:
        last, step = self._plan.seed + self._plan.count, self._plan.jobs
        while at < last:
            yield at
            at += step
            if at - step < 0 <= at:  # from the corpus to the seeds
                at = self._plan.seed + self._share

    def _set(self, at: int) -> None:
        self._state[:] = struct.pack("<qd", at, time.monotonic())

    def _at(self) -> tuple[int, float]:
        at, since = struct.unpack("<qd", self._state[:])
        return at, since

    def read(self) -> list[dict[str, Any]]:
        """What came; the case that ended the process is a finding."""
        data = os.read(self.pipe, 1 << 16)
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        found = [json.loads(line) for line in lines]
        if not data:
            os.close(self.pipe)
            _, status = os.waitpid(self._pid, 0)
            self._pid = 0
            code = os.waitstatus_to_exitcode(status)
            self.ended = code == 0
            if not self.ended:
                found.append(self._lost(f"the process ended with {_named(code)}"))
        return found

    def stalled(self) -> list[dict[str, Any]]:
        """A finding if the case takes too long; the process is ended then."""
        if time.monotonic() - self._at()[1] < _HANGING_S:
            return []
        self.end()
        return [self._lost(f"the process hung for over {_HANGING_S:.0f} s")]

    def _lost(self, why: str) -> dict[str, Any]:
        at = self._at()[0]
        case = case_at(self._target, at)
        following = self._following(at)
        next(following, None)
        after = next(following, None)
        if after is None:
            self.ended = True
        else:
            self._begin(after)
        return entry_of(self._target, self._plan, case, Outcome("lost", violation=why), 0.0)

    def end(self) -> None:
        """Kill it."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            os.close(self.pipe)
            self._pid = 0


def case_at(target: Target, at: int) -> Case:
    """A case of the corpus, counted from its end below zero, or that of a seed."""
    return target.corpus()[at] if at < 0 else target.case(at)


def entry_of(target: Target, plan: Plan, case: Case, outcome: Outcome, seconds: float) -> dict[str, Any]:
    """One case as a line of the worker's answer; a finding's files are kept."""
    repeat = ""
    if outcome.violation:
        folder = plan.kept / target.name / case.name
        case.keep(folder)
        shown = folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder
        repeat = f"python -m tests.fuzz {target.name} --input {shown}"
    return {
        "name": case.name,
        "kind": outcome.kind,
        "violation": outcome.violation,
        "repeat": repeat,
        "seconds": round(seconds, 3),
        "memory_bytes": outcome.memory_bytes,
    }


def _work(
    target: Target, plan: Plan, cases: Iterator[int], begin: Callable[[int], None], send: int
) -> NoReturn:
    """Never returns: nothing of the parent's is to run here at the end."""
    code = 1
    place = Path(tempfile.mkdtemp(prefix="edgetlm-fuzz-")).resolve()
    try:
        if not target.apart:
            _bound_memory()
        target.open(place)
        for at in cases:
            begin(at)
            case = case_at(target, at)
            outcome, seconds = judged(target, case)
            line = json.dumps(entry_of(target, plan, case, outcome, seconds)).encode() + b"\n"
            os.write(send, line)
        target.close()
        code = 0
    except BaseException:  # noqa: BLE001 - told by the code that it ends with
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        shutil.rmtree(place, ignore_errors=True)
        os._exit(code)


def _bound_memory() -> None:
    """A case that takes too much memory gets a MemoryError, which no rule allows."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = MAX_BYTES if most == resource.RLIM_INFINITY else min(MAX_BYTES, most)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, most))


def _named(code: int) -> str:
    return f"code {code}" if code >= 0 else signal.Signals(-code).name
