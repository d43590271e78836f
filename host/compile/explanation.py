"""What is known of a kernel's program: its place on the roofline, and the walk that constructed it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from host import bundle
from host.bundle import TASKS
from host.compile.static_model import defects_as
from host.compile.stored_tasks.file import StoredTask, stored_profile, stored_task
from host.errors import ScheduleError, one_line
from host.manifest import Kernel, Manifest
from host.model import Candidate, DeviceProfile
from host.model.timing import TimingPolicy, kept_timing
from host.progress import StageClock
from host.table import Table, Tabular
from targets import HardwareModel

if TYPE_CHECKING:
    from host.gensor.walk import Step
    from host.learned_estimate.taught import Taught
    from host.schedules import DesignSpace


# Kernels of a bundle whose walks are gone again.
_WALKED = 3


@dataclass(frozen=True)
class Roofline:
    """A program under the limits of the processor's arithmetic and memory.

    Attributes:
        hardware: the processor.
        threads: cores that the program uses.
        flops: floating-point operations of one call.
        bytes_moved: by memory level, bytes read from the level in one call; from the last level, every
            argument is read at least once.
        estimate_s: estimated seconds of one call; None on a default schedule.
        measured_s: seconds of one call inside the running model; None where not measured.
    """

    hardware: HardwareModel
    threads: int
    flops: float
    bytes_moved: Mapping[str, float]
    estimate_s: float | None
    measured_s: float | None

    @property
    def peak_flops(self) -> float:
        """FLOP/s that all cores, or the GPU, reach at most."""
        gpu = self.hardware.gpu
        return self.hardware.peak_flops * self.threads if gpu is None else gpu.peak_flops

    @property
    def bandwidths(self) -> dict[str, float]:
        """Bytes per second out of each memory level.

        The last level is shared by all cores; caches come with each core, or feed several of them. Those of a
        GPU are of all of it.
        """
        if self.hardware.gpu is not None:
            return {level.name: level.bandwidth_bytes_per_s for level in self.hardware.gpu.levels}
        *inner, last = self.hardware.levels
        found = {level.name: level.bandwidth_bytes_per_s * self.threads for level in inner}
        return {**found, last.name: last.bandwidth_bytes_per_s}

    @property
    def source(self) -> str:
        """Where the figures of the processor come from."""
        return self.hardware.source if self.hardware.gpu is None else self.hardware.gpu.source

    @property
    def intensity(self) -> float | None:
        """FLOP per byte of the arguments, each read or written once; None where there is no arithmetic."""
        moved = self.bytes_moved[self.hardware.levels[-1].name]
        return self.flops / moved if self.flops and moved else None


@dataclass(frozen=True, eq=False)
class Explanation(Tabular):
    """Everything that `sdk explain` shows.

    Attributes:
        manifest: of the bundle.
        kernel: of the manifest.
        device: for which the program was made.
        roofline: of the program.
        steps: every step of every walk, in order; empty for programs that no walk made.
        path: the steps that led to the program, its descent included.
        trail: for each step of the path, bytes read from the second level and estimated seconds; empty if the
            rule does not estimate bytes. shares: seconds of the estimate by cause, empty if the rule gives
            none. remark: why there is no walk, or why the walk ends at another program; "" otherwise.
        program: the scheduled function as TensorIR script; "" on a default schedule.
        taught: what the board's measurements say of all kernels of the model; None where nobody asked.
        plan: of the whole model, in words; "" where nothing was decided across operators.
    """

    manifest: Manifest
    kernel: Kernel
    device: str
    roofline: Roofline
    steps: tuple[Step, ...]
    path: tuple[Step, ...]
    trail: tuple[tuple[float, float], ...]
    shares: Mapping[str, float]
    remark: str
    program: str
    taught: Taught | None = None
    plan: str = ""

    @property
    def timing(self) -> TimingPolicy:
        """What the times of the kernel are worth, by what the bundle says of its device."""
        measured = self.manifest.measured
        emulated, simulated = (measured.get(name) is True for name in ("emulated", "simulated"))
        return kept_timing(emulated, simulated, str(measured.get("device", "")))

    @property
    def run_s(self) -> float:
        """Seconds of all its calls in one run, measured or else estimated; 0 where neither is known."""
        return self.kernel.weight * (self.roofline.measured_s or self.roofline.estimate_s or 0.0)

    def tables(self) -> tuple[Table, ...]:
        """What the kernel is and what limits it; then the steps that led to its program."""
        kernel, roofline = self.kernel, self.roofline
        seconds = {"estimate_us": roofline.estimate_s, "measured_us": roofline.measured_s}
        rows: list[tuple[str, object]] = [
            *(("kernel", kernel.name), ("made_by", kernel.source), ("rule", kernel.rule or None)),
            *(("computes", layer.text) for layer in kernel.layers),
            *((f"decision {name}", value) for name, value in kernel.decisions.items()),
            *((name, None if value is None else value * 1e6) for name, value in seconds.items()),
            ("flops", roofline.flops),
            *((f"bytes from {name}", value) for name, value in roofline.bytes_moved.items()),
            ("remark", self.remark or None),
            *_taught_rows(self.taught),
        ]
        steps = [
            (
                number,
                *one.taken,
                one.cost_s * 1e6,
                ", ".join(f"{k} {v}" for k, v in one.state.decisions.items()),
            )
            for number, one in enumerate(self.path)
        ]
        return (
            Table("kernel", f"{kernel.name} for {self.device}", ("name", "value"), tuple(rows)),
            Table(
                "path",
                "Steps to the program",
                ("step", "change", "decision", "estimate_us", "decisions"),
                tuple(steps),
            ),
            *(self.taught.tables() if self.taught else ()),
        )


def _taught_rows(taught: Taught | None) -> list[tuple[str, object]]:
    """What the board has taught, as names with values."""
    if taught is None:
        return []
    rows: list[tuple[str, object]] = [("taught remark", taught.remark or None)]
    for table in taught.tables():
        for key, *values in table.rows:
            rows += [
                (f"{table.name} {key} {name}", value)
                for name, value in zip(table.columns[1:], values, strict=True)
            ]
    return rows


def explained_kernels(
    directory: Path, clock: StageClock, spaces: Mapping[str, DesignSpace] | None = None
) -> tuple[Explanation, ...]:
    """The kernels of a bundle that this process has written, those with the most time in a run first.

    Args:
        directory: of the bundle. One of unknown origin is for `read_task` to read.
        clock: counts the stage, and receives a note for each kernel that cannot be explained and is left out.
        spaces: design spaces by workload hash that this process has made. Those for the bundle's processor
            and threads are used, the others are made again.

    Returns:
        Explanations; the first few have their programs, and their walks, which are gone again for it. Empty
        for a bundle without kernels, and for one of a range of lengths.
    """
    with clock.stage("explain"):
        return _explained_kernels(directory, clock.progress.note, spaces or {})


def _explained_kernels(
    directory: Path, note: Callable[[str], None], spaces: Mapping[str, DesignSpace]
) -> tuple[Explanation, ...]:
    manifest = bundle.read_manifest(directory)
    if not manifest.kernels or manifest.signature.length is not None:
        return ()
    content = json.loads((directory / TASKS).read_text())
    profile = stored_profile(content)
    known = {key: space for key, space in spaces.items() if _is_for(space, profile)}
    found: list[tuple[Explanation, StoredTask]] = []
    for kernel in manifest.kernels:
        try:
            with defects_as(ScheduleError, kernel.name):
                space = known.get(kernel.task)
                function = space.task.function if space is not None else None
                stored = stored_task(content, kernel.task, profile, function)
                found.append((explained(manifest, kernel, stored, walks=False, space=space), stored))
        except ScheduleError as error:
            note(f"{kernel.name} is left out of the roofline: {one_line(error)}")
    found.sort(key=lambda one: one[0].run_s, reverse=True)
    made = [one for one, _ in found]
    for place, (one, stored) in enumerate(found[:_WALKED]):
        try:
            with defects_as(ScheduleError, one.kernel.name):
                made[place] = explained(manifest, one.kernel, stored, space=known.get(one.kernel.task))
        except ScheduleError as error:
            note(f"the walks of {one.kernel.name} are left out: {one_line(error)}")
    return tuple(made)


def _is_for(space: DesignSpace, profile: DeviceProfile) -> bool:
    return space.threads == profile.threads and space.hardware == profile.hardware


def explained(
    manifest: Manifest,
    kernel: Kernel,
    stored: StoredTask,
    walks: bool = True,
    space: DesignSpace | None = None,
) -> Explanation:
    """What is known of a kernel.

    Args:
        manifest: of its bundle.
        kernel: of the manifest.
        stored: its function, and what it was made for.
        walks: whether its program is written out and its walks are gone again, which takes longest.
        space: the design space of the task on the stored profile; made of the stored task if None.

    Raises:
        ScheduleError: the program has no estimate.
    """
    from host.schedules import scheduled_function, space_for

    values = {name: int(value) for name, value in kernel.decisions.items()}
    remark, program = stored.reason, ""
    try:
        if kernel.source == "default":
            space = None
            remark = f"this kernel has a default schedule: {remark or 'its program did not compile'}"
        else:
            space = space or space_for(stored.task, stored.profile.hardware, stored.profile.threads)
            decisions = tuple(values.items())
            candidate = Candidate(
                kernel.task, kernel.rule, decisions, kernel.source, 0.0, stored.space_version
            )
            program = scheduled_function(space.apply(candidate)).script() if walks else ""
    except ScheduleError as error:
        remark, space = f"the design space of this version does not hold the program: {error}", None
    steps: tuple[Step, ...] = ()
    path: tuple[Step, ...] = ()
    if space is not None and walks:
        steps, path, remark = _walks(space, stored, values)
        if remark and kernel.source != "gensor":
            remark = f"no walk leads to this program: {kernel.source} proposed it"
    return Explanation(
        manifest=manifest,
        kernel=kernel,
        device=f"{stored.profile.device}: {stored.profile.board.title}",
        roofline=_roofline(kernel, stored, space, values),
        steps=steps,
        path=path,
        trail=_trail(space, path),
        shares=_shares(space, values),
        remark=remark,
        program=program,
        plan=stored.plan,
    )


def _walks(
    space: DesignSpace, stored: StoredTask, values: dict[str, int]
) -> tuple[tuple[Step, ...], tuple[Step, ...], str]:
    """The steps of all walks, those that led to the program, and a remark if none did."""
    from host.gensor import Gensor
    from host.schedules.api import PARALLEL

    walked = [space]
    if values.get(PARALLEL.name) == 1 and (alone := space.fixed({PARALLEL.name: 1})) is not None:
        # Where neighbours decide that threads do not share it, it was constructed for one of them.
        walked.append(alone)
    for one in walked:
        steps: list[Step] = []
        Gensor().retrace(one, stored.profile, stored.seed, steps.append)
        if path := path_to(steps, values):
            break
    if path:
        # A walk goes on after the best program that it meets; the path ends there.
        return tuple(steps), (*path[:-1], replace(path[-1], taken=("stop", ""))), ""
    return tuple(steps), (), "no walk leads to this program: it was chosen by measurements on the device"


def path_to(steps: list[Step], values: Mapping[str, int]) -> tuple[Step, ...]:
    """The steps that led to a program: the beginning of a walk, or a walk and the descent from its end."""
    wanted = dict(values)
    for index, step in enumerate(steps):
        if step.state.decisions != wanted:
            continue
        begin = index
        while begin and steps[begin - 1].walk == step.walk and steps[begin - 1].taken[0] != "stop":
            begin -= 1
        piece = tuple(steps[begin : index + 1])
        if step.walk >= 0:
            return piece
        before = path_to([s for s in steps if s.walk >= 0], piece[0].state.decisions)
        return before[:-1] + piece if before else piece
    return ()


def _trail(space: DesignSpace | None, path: tuple[Step, ...]) -> tuple[tuple[float, float], ...]:
    found = []
    for step in path:
        parts = _shares(space, step.state.decisions)
        if space is not None and parts:
            source = space.hardware.levels[1]
            moved = parts[source.name] * source.bandwidth_bytes_per_s
            found.append((moved or _argument_bytes(space.task.function), step.cost_s))
    return tuple(found)


def _shares(space: DesignSpace | None, values: dict[str, int]) -> Mapping[str, float]:
    return space.estimate_parts_s(values) if space is not None else {}


def _roofline(
    kernel: Kernel, stored: StoredTask, space: DesignSpace | None, values: dict[str, int]
) -> Roofline:
    hardware, task = stored.profile.hardware, stored.task
    estimate = stored.estimate_s
    if space is not None and estimate is None:
        estimate = space.estimate_s(values)
    flops = task.flops or (space.workload.flops if space is not None else 0.0)
    last = hardware.levels[-1].name
    moved: dict[str, float] = {last: _argument_bytes(task.function)}
    for name, seconds in _shares(space, values).items():
        if name in {level.name for level in hardware.levels}:
            moved[name] = moved.get(name, 0.0) + seconds * hardware.level(name).bandwidth_bytes_per_s
    measured = kernel.latency_us * 1e-6 if kernel.latency_us else None
    return Roofline(
        hardware, stored.profile.threads, flops, moved, None if space is None else estimate, measured
    )


def _argument_bytes(function: Any) -> float:
    """Bytes of all arguments."""
    import numpy as np

    total = 0.0
    for parameter in function.params:
        elements = np.prod([int(extent) for extent in parameter.shape], dtype=np.float64)
        total += float(elements) * np.dtype(str(parameter.dtype)).itemsize
    return total
