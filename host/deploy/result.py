"""The result of a deployment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from host.compare.backends import Choice
from host.compare.entrants import EntrantResult
from host.compare.selection import VariantSelection
from host.compare.verification import Verification
from host.compile.task_outcome import TaskOutcome
from host.model import BOARD, CallGraph, Measurement, Signature, Start, TimingPolicy
from host.progress import StageSpan
from host.table import Table, Tabular
from targets import MachineDescription

if TYPE_CHECKING:
    from host.compare.comparison import LengthFigures
    from host.compile.explanation import Explanation
    from host.deploy.gates import Gate
    from host.deploy.staging import ReplacedBundle
    from host.manifest import MemoryPart
    from host.model.numeric_types import NumericTypes
    from host.model.quantisation import Quantisation
    from host.model.text_comparison import TextComparison
    from host.model.text_quality import TextQuality
    from host.model.text_speed import TextSpeed
    from host.plans.outcome import PlanOutcome
    from host.tuning.result import TuneResult


@dataclass(frozen=True)
class DeployResult(Tabular):
    """Everything that `sdk deploy` reports.

    Attributes:
        name: the model's name on the device.
        bundle: directory or zip of the bundle.
        device: name of the device.
        machine: what it is.
        threads: threads of every contender.
        signature: of the model.
        choice: the installed backend.
        contenders: by engine, including the compiled model ("tvm") if there is one.
        ratios: time of each peer over ours with its 95% bounds (value, low, high).
        tasks: of the compiled model; empty if there is none.
        fallback: why there is no compiled model; "" if there is.
        seconds: by stage, with "total".
        versions: by name, of host and device.
        command: the command line.
        installed: whether the bundle is active on the device.
        lengths: the comparison at each measured length of a range; `contenders` then has the figures of the
            greatest length, and `ratios` the geometric means. tuning: the result of measuring kernels; None
            if no kernels were measured. power: variants of the model, also in other power modes; None if
            there was only one. bundle_bytes: of the files that the device runs: library and parameters, or
            the model file. memory: what the compiled model takes on the device; None for another backend.
            timing: what the times of the device are worth. gates: the limits
            that were set, with their verdicts; nothing is installed if one is not met. context: tokens that a
            language model keeps, whose step with one token is what was measured; 0 for another model.
            quantisation: how the model was quantised with samples; None if it was not. stages: when each
            stage was under way. text: how well a language model continues the user's text; None without one.
            speed: of prompts and texts of a language model; None of another, and where times say nothing.
            beside: the same beside other engines of language models; None where none was measured.
            replaced: the bundle of the deployment before, in whose place this one is put; None for the first.
            date: on which it was made (UTC, ISO 8601). parameters: of the model file; None where they were
            not counted. explained: the kernels under the limits of the processor, those with the most time
            first, the first few with their walks; empty where the length is open, and for another backend.
            calls: of the compiled model's kernels in one run; without any where there is none. plan: of the
            whole model; None where it leaves nothing open, and for another backend. types: what `--dtype
            auto` found for the layers; None where it was not asked for, or the model is not compiled.
    """

    name: str
    bundle: Path
    device: str
    machine: MachineDescription
    threads: int
    signature: Signature
    choice: Choice
    contenders: Mapping[str, EntrantResult]
    ratios: Mapping[str, tuple[float, float, float]]
    tasks: tuple[TaskOutcome, ...]
    fallback: str
    seconds: Mapping[str, float]
    versions: Mapping[str, str]
    command: str
    installed: bool
    lengths: tuple[LengthFigures, ...] = ()
    tuning: TuneResult | None = None
    power: VariantSelection | None = None
    bundle_bytes: int = 0
    memory: MemoryPart | None = None
    timing: TimingPolicy = BOARD
    gates: tuple[Gate, ...] = ()
    context: int = 0
    quantisation: Quantisation | None = None
    stages: tuple[StageSpan, ...] = ()
    text: TextQuality | None = None
    speed: TextSpeed | None = None
    beside: TextComparison | None = None
    replaced: ReplacedBundle | None = None
    date: str = ""
    parameters: int | None = None
    explained: tuple[Explanation, ...] = ()
    calls: CallGraph = field(default_factory=CallGraph)
    plan: PlanOutcome | None = None
    types: NumericTypes | None = None

    def __repr__(self) -> str:
        """One line; the figures are in the fields."""
        one = self.contenders[self.choice.backend].measurement
        time_text = (
            "not timed" if one is None or not self.timing.decides else f"{one.median_s * 1e3:.3f} ms a run"
        )
        return (
            f"<DeployResult {self.name} on {self.device}: {self.choice.backend}, {time_text}, "
            f"{len(self.tasks)} kernels, {self.bundle}>"
        )

    def tables(self) -> tuple[Table, ...]:
        """The engines, the kernels, and the layers of a model that was quantised here."""
        state = "installed" if self.installed else "not installed"
        engines = Table(
            "engines",
            f"{self.name} on {self.device}: {self.choice.backend}, {state}",
            ("engine", "median_ms", "p10_ms", "p90_ms", "times_ours", "energy_mj", "error", "remark"),
            tuple(self._engine_row(name) for name in (self.choice.backend, *self.peers)),
        )
        kernels = Table(
            "kernels",
            "Kernels of the compiled model",
            ("kernel", "calls", "made_by", "rule", "us_a_call"),
            tuple((one.name, one.weight, one.source, one.rule, one.latency_us) for one in self.tasks),
        )
        layers = Table(
            "layers",
            "Layers, and what each loses where it is quantised alone",
            ("layer", "operator", "rms_alone", "multiply_adds", "computes_in"),
            ()
            if self.quantisation is None
            else tuple(
                (one.name, one.operator, one.alone, one.multiply_adds, "int8" if one.quantised else "floats")
                for one in self.quantisation.by_loss()
            ),
        )
        return engines, kernels, layers

    def _engine_row(self, name: str) -> tuple[object, ...]:
        one = self.contenders[name]
        verdict = one.verification
        error = None if verdict is None else verdict.max_rel_err
        if one.measurement is None or not self.timing.decides:
            remark = one.why_excluded or (
                "not measured" if self.timing.decides else f"the device {self.timing.state}"
            )
            return (name, None, None, None, None, None, error, remark)
        times, joules = one.measurement, one.measurement.energy.gross_j
        return (
            name,
            times.median_s * 1e3,
            times.p10_s * 1e3,
            times.p90_s * 1e3,
            times.median_s / self.measurement.median_s,
            None if joules is None else joules * 1e3,
            error,
            "" if times.trusted else "throttled",
        )

    @property
    def emulated(self) -> bool:
        """Whether its times say nothing of a board."""
        return not self.timing.decides

    @property
    def processor(self) -> str:
        """What runs the installed model: the GPU beside its CPU, or the CPU alone."""
        compiled = self.explained[0].roofline.hardware.gpu if self.explained else None
        if compiled is None or self.choice.backend != "tvm":
            return self.machine.cpu_name
        return f"{compiled.name} beside {self.machine.cpu_name}"

    @property
    def flops(self) -> float | None:
        """Floating-point operations of a run, of a language model of a step.

        None without a compiled model, where the length is open, or where no kernel of a step is known.
        """
        # A language model has kernels of prompts and drafts as well; those with a time ran in a step.
        tasks = [task for task in self.tasks if task.latency_us] if self.context else self.tasks
        total = sum(task.weight * task.flops for task in tasks)
        return total if total and not self.lengths else None

    @property
    def start(self) -> Start | None:
        """How long the installed backend took to its first output; None where that is not known."""
        return self.contenders[self.choice.backend].start

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
    def failed_gates(self) -> tuple[Gate, ...]:
        """The gates that are not met."""
        return tuple(one for one in self.gates if not one.passed)

    @property
    def peers(self) -> dict[str, EntrantResult]:
        """All contenders but the installed backend."""
        return {name: one for name, one in self.contenders.items() if name != self.choice.backend}

    @property
    def default_share(self) -> float:
        """Share of the kernels' time in kernels with a default schedule."""
        times = [(task.source, task.weight * task.latency_us) for task in self.tasks if task.latency_us]
        total = sum(time for _, time in times)
        return sum(time for source, time in times if source == "default") / total if total else 0.0
