"""What a deployment found out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from host.model import Measurement, Signature
from host.options import Backend
from targets import MachineDescription

if TYPE_CHECKING:
    from host.compare.operating_points import PowerResult
    from host.tuning.result import TuneResult


@dataclass(frozen=True)
class Verification:
    """How far a bundle's outputs on the device are from the golden ones.

    Attributes:
        max_rel_err: largest max|a-b| / max|golden| over cases and outputs.
        tolerance: of the output that came closest to its own.
        passed: whether every output is within its tolerance.
        message: names what differs, where and by how much; "" when passed.
    """

    max_rel_err: float
    tolerance: float
    passed: bool
    message: str = ""


@dataclass(frozen=True)
class TaskOutcome:
    """One task of the model and the program that it got.

    Attributes:
        name: kernel name.
        workload_hash: the task.
        weight: calls in one run of the model.
        source: who made the program: "gensor", "tlm", "evolutionary", "random", "default".
        rule: rule of the design space, "" where none.
        decisions: what was decided.
        from_database: the program was found in the record store.
        reason: why the schedule is a default one; "" where it is not.
        flops: floating-point operations of one call.
        latency_us: microseconds of one call inside the running model; None where not measured.
        programs: how many there are to choose from, where the length is open.
    """

    name: str
    workload_hash: str
    weight: int
    source: str
    rule: str = ""
    decisions: Mapping[str, Any] = field(default_factory=dict)
    from_database: bool = False
    reason: str = ""
    flops: float = 0.0
    latency_us: float | None = None
    programs: int = 1


@dataclass(frozen=True)
class Contender:
    """One engine's figures in the comparison.

    Attributes:
        engine: its name.
        measurement: times and energy; None if it could not run.
        verification: its outputs against the golden ones; None for peers of another runtime's file.
        reason: why it could not run.
        rounds_s: median seconds of each round of the comparison; those of other contenders correspond.
        windows: each energy window of the comparison.
    """

    engine: str
    measurement: Measurement | None
    verification: Verification | None = None
    reason: str = ""
    rounds_s: tuple[float, ...] = ()
    windows: tuple[Measurement, ...] = ()


@dataclass(frozen=True)
class Choice:
    """Which backend was installed and why.

    Attributes:
        backend: "tvm", "onnxruntime" or "litert".
        why: one sentence.
        ratio: the peer's figure over ours, with its 95% bounds (low, high); None if not compared.
    """

    backend: Backend
    why: str
    ratio: tuple[float, float, float] | None = None


@dataclass(frozen=True)
class LengthFigures:
    """The comparison at one length of a range.

    Attributes:
        length: of the inputs.
        measurements: by engine.
        ratios: time of each peer over ours with its 95% bounds (value, low, high).
    """

    length: int
    measurements: Mapping[str, Measurement]
    ratios: Mapping[str, tuple[float, float, float]]


@dataclass(frozen=True)
class DeployResult:
    """Everything that `sdk deploy` reports.

    Attributes:
        name: the model's name on the device.
        bundle: directory or zip of the bundle.
        device: name of the device.
        machine: what it is.
        threads: threads of every contender.
        signature: of the model.
        choice: the installed backend.
        contenders: by engine, ours ("tvm") included where it was made.
        ratios: time of each peer over ours with its 95% bounds (value, low, high).
        tasks: of the compiled model; empty if there is none.
        fallback: why there is no compiled model; "" if there is.
        seconds: by stage, with "total".
        versions: by name, of host and device.
        command: the command line.
        installed: whether the bundle is active on the device.
        lengths: the comparison at each measured length, where a range is served; `contenders` then has the
            figures of the greatest of them, and `ratios` the geometric means.
        tuning: what measuring kernels found out; None where none was asked for.
        power: variants of the model beside each other, and in power modes; None where there was no choice.
        bundle_bytes: of the files that the device runs: library and parameters, or the model file.
        emulated: the device is an emulator, whose times say nothing of a board.
    """

    name: str
    bundle: Path
    device: str
    machine: MachineDescription
    threads: int
    signature: Signature
    choice: Choice
    contenders: Mapping[str, Contender]
    ratios: Mapping[str, tuple[float, float, float]]
    tasks: tuple[TaskOutcome, ...]
    fallback: str
    seconds: Mapping[str, float]
    versions: Mapping[str, str]
    command: str
    installed: bool
    lengths: tuple[LengthFigures, ...] = ()
    tuning: TuneResult | None = None
    power: PowerResult | None = None
    bundle_bytes: int = 0
    emulated: bool = False

    @property
    def measurement(self) -> Measurement:
        """Figures of the installed backend."""
        measurement = self.contenders[self.choice.backend].measurement
        assert measurement is not None
        return measurement

    @property
    def verification(self) -> Verification:
        """Verification of the installed backend."""
        verification = self.contenders[self.choice.backend].verification
        assert verification is not None
        return verification

    @property
    def peers(self) -> dict[str, Contender]:
        """All contenders but the installed backend."""
        return {name: one for name, one in self.contenders.items() if name != self.choice.backend}

    @property
    def default_share(self) -> float:
        """Share of the kernels' time that is spent in kernels on a default schedule."""
        times = [(task.source, task.weight * task.latency_us) for task in self.tasks if task.latency_us]
        total = sum(time for _, time in times)
        return sum(time for source, time in times if source == "default") / total if total else 0.0
