"""A board whose times are known: real design spaces, times by a formula, proposers of known skill."""

from __future__ import annotations

import functools
import hashlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tvm.script import tirx as T

from host.errors import BuildError, DeviceError, TlmError
from host.model import Candidate, DeviceProfile, Energy, Measurement, Task
from host.schedules import DesignSpace, space_for
from host.schedules.families import rule_versions
from host.tuning.runners.runner import Outcome, Program
from host.tuning.tasks import TuningTask
from targets import board_for, declared


@T.prim_func(s_tir=True)
def dense(
    x: T.Buffer((16, 64), "float32"), w: T.Buffer((64, 64), "float32"), y: T.Buffer((16, 64), "float32")
) -> None:
    T.func_attr({"tirx.noalias": True})
    for i, j, k in T.grid(16, 64, 64):
        with T.sblock("y"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                y[vi, vj] = T.float32(0)
            y[vi, vj] = y[vi, vj] + x[vi, vk] * w[vk, vj]


@functools.cache
def profile() -> DeviceProfile:
    """One unit of an AVX2 board, one thread."""
    board = board_for(declared()["x86_64-v3"])
    assert board is not None
    return DeviceProfile("desk", board, board.hardware, 1)


@functools.cache
def dense_space(name: str = "dense", weight: int = 1) -> DesignSpace:
    """The design space of a small matrix product under a name of its own."""
    task = Task(name, dense, weight, f"hash-{name}", 2.0 * 16 * 64 * 64)
    return space_for(task, profile().hardware)


def truth(space: DesignSpace, candidate: Candidate) -> float:
    """Seconds of a program: the analytical estimate, up to 30% more by a hash that no model knows."""
    values = {name: int(candidate.value(name)) for name, _ in candidate.decisions}
    text = f"{candidate.workload_hash}/{candidate.decisions}"
    luck = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") / 2**32
    return space.estimate_s(values) * (1.0 + 0.3 * luck)


def measured(seconds: float) -> Measurement:
    """A measurement with this median."""
    return Measurement((seconds,) * 3, Energy("unavailable", None, None, "simulated"), {}, {}, 1)


class Skilled:
    """Proposes the best by truth of `draws` random programs for each candidate."""

    def __init__(self, name: str, draws: int) -> None:
        self.name = name
        self.draws = draws

    def propose(
        self,
        space: DesignSpace,
        profile: DeviceProfile,
        history: Sequence[tuple[Candidate, Measurement]],
        k: int,
        seed: int,
    ) -> list[Candidate]:
        generator = random.Random(f"{self.name}/{space.task.workload_hash}/{seed}/{len(history)}")
        known = {candidate.decisions for candidate, _ in history}
        found: dict[object, Candidate] = {}
        for _ in range(k):
            sample_proposer = [space.candidate(space.sample(generator), self.name) for _ in range(self.draws)]
            fresh = [
                one for one in sample_proposer if one.decisions not in known and one.decisions not in found
            ]
            if fresh:
                best = min(fresh, key=lambda one: truth(space, one))
                found[best.decisions] = best
        return list(found.values())


class Broken:
    """A language model whose checkpoint is damaged."""

    name = "tlm"

    def propose(
        self,
        space: DesignSpace,
        profile: DeviceProfile,
        history: Sequence[tuple[Candidate, Measurement]],
        k: int,
        seed: int,
    ) -> list[Candidate]:
        raise TlmError("models/x/weights.safetensors: the weights do not match model.json; copy it again")


def candidate(task: str, number: int, proposer: str) -> Candidate:
    """A made-up program."""
    return Candidate(task, "tiled", (("rows", number),), proposer, 1.0, rule_versions()["tiled"])


def by(one: Candidate, proposer: str) -> Candidate:
    """The same program, proposed by another."""
    return replace(one, proposer=proposer)


class SimulatedRunner:
    """Builds nothing and measures by formula.

    Args:
        folder: where the libraries would be.
        events: told what is measured, in order.
        fail: whether a program does not compile.
        pause_s: time that a measurement takes at least.
    """

    def __init__(
        self,
        folder: Path,
        events: list[str] | None = None,
        fail: Callable[[Candidate], bool] = lambda one: False,
        pause_s: float = 0.0,
    ) -> None:
        self._folder = folder
        self._built: dict[Path, Candidate] = {}
        self._fail = fail
        self._pause_s = pause_s
        self.events = events if events is not None else []
        self.done: list[Candidate] = []
        self.lose_after: int | None = None

    def build(self, task: TuningTask, candidate: Candidate) -> Path:
        if self._fail(candidate):
            raise BuildError("kernel dense: does not compile")
        path = self._folder / f"{len(self._built)}.so"
        self._built[path] = candidate
        return path

    def run(self, programs: Sequence[Program], may_begin: Callable[[], bool]) -> Iterator[Outcome]:
        for program in programs:
            if not may_begin():
                return
            if not isinstance(program.built, Path):
                yield Outcome(program, None, program.failure)
            else:
                yield Outcome(program, self.measure(program.task, program.built), "", "desk")

    def measure(self, task: TuningTask, library: Path) -> Measurement:
        if self.lose_after is not None and len(self.done) >= self.lose_after:
            raise DeviceError("desk does not come back; all measurements are stored")
        time.sleep(self._pause_s)
        candidate = self._built[library]
        self.done.append(candidate)
        self.events.append(f"measure {candidate.proposer}")
        return measured(truth(task.space, candidate))


@functools.cache
def dense_of(rows: int) -> DesignSpace:
    """The design space of a matrix product with so many rows."""

    @T.prim_func(s_tir=True)
    def function(
        x: T.Buffer((rows, 64), "float32"),
        w: T.Buffer((64, 64), "float32"),
        y: T.Buffer((rows, 64), "float32"),
    ) -> None:
        T.func_attr({"tirx.noalias": True})
        for i, j, k in T.grid(rows, 64, 64):
            with T.sblock("y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    y[vi, vj] = T.float32(0)
                y[vi, vj] = y[vi, vj] + x[vi, vk] * w[vk, vj]

    task = Task(f"dense{rows}", function, 1, f"hash-dense{rows}", 2.0 * rows * 64 * 64)
    return space_for(task, profile().hardware)


def different_tasks() -> list[TuningTask]:
    """Tasks that read differently, so that some of them can judge what was learned from the others."""
    return [TuningTask(dense_of(rows), 1e-5) for rows in (8, 16, 24, 32, 48)]


def tuning_tasks(count: int = 3) -> list[TuningTask]:
    """Tasks of different weights."""
    return [TuningTask(dense_space(f"t{number}", number + 1), 1e-5) for number in range(count)]
