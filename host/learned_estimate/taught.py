"""What a board has taught about the kernels of one model: estimates and choices before and after."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from host.learned_estimate.estimate import LearnedEstimate
from host.learned_estimate.evidence import Evidence, convincing_rules, evidence_for
from host.learned_estimate.joined import with_part_rules
from host.learned_estimate.observation import Observation
from host.learned_estimate.power import LearnedPower, RulePower, WithheldError
from host.learned_estimate.search import first_program
from host.model import DeviceProfile
from host.schedules.design import DesignSpace
from host.table import Table


@dataclass(frozen=True, eq=False)
class BuiltKernel:
    """A kernel of a model with the program that it has.

    Attributes:
        name: of the kernel.
        calls: in one run of the model.
        space: of its programs.
        values: of its program's decisions.
        measured: whether the program was chosen by measurements of this very kernel.
    """

    name: str
    calls: int
    space: DesignSpace
    values: Mapping[str, int]
    measured: bool = False


@dataclass(frozen=True)
class KernelEstimate:
    """The estimate of a kernel's program, and what the board's measurements make of it.

    Attributes:
        name: of the kernel.
        rule: of its program.
        calls: in one run of the model.
        estimate_s: T, estimated seconds of one call.
        learned_s: T_hat, the same corrected by the board's measurements.
        changed: decisions of the program that a deployment would choose now which differ from the kernel's,
            each with the value before and after; empty if it would keep the program.
        gain: how many times as fast the other program is by T_hat; 1 without one.
    """

    name: str
    rule: str
    calls: int
    estimate_s: float
    learned_s: float
    changed: tuple[tuple[str, int, int], ...] = ()
    gain: float = 1.0

    @property
    def choice(self) -> str:
        """The decisions that change, as text; "" where none does."""
        return ", ".join(f"{name} {before} to {after}" for name, before, after in self.changed)


@dataclass(frozen=True)
class TaughtPower:
    """What a board has taught about the power of the programs of one rule.

    Attributes:
        rule: of the programs.
        programs: measurements with joules.
        median_w, least_w, most_w: of their watts.
        same_tasks: how far predicted watts are from those of withheld programs of measured tasks.
        other_tasks: the same of withheld tasks.
    """

    rule: str
    programs: int
    median_w: float
    least_w: float
    most_w: float
    same_tasks: WithheldError
    other_tasks: WithheldError

    @classmethod
    def of(cls, known: RulePower) -> TaughtPower:
        """What is known of a rule."""
        watts = known.watts
        middle = statistics.median(watts)
        return cls(known.rule, len(watts), middle, min(watts), max(watts), known.programs, known.tasks)


@dataclass(frozen=True)
class Taught:
    """What a board has taught about a model.

    Attributes:
        evidence: of each rule of which programs were measured, the one with most programs first.
        kernels: those of such rules, the ones with the most estimated time in a run first.
        remark: one line with what to type where nothing was taught; "" otherwise.
        power: of each rule of which joules were measured, the one with most programs first.
    """

    evidence: tuple[Evidence, ...] = ()
    kernels: tuple[KernelEstimate, ...] = ()
    remark: str = ""
    power: tuple[TaughtPower, ...] = ()

    def tables(self) -> tuple[Table, Table, Table]:
        """The evidence of each rule; the two estimates of each kernel; what is known of each rule's power."""
        rules = tuple(
            (
                one.rule,
                one.programs,
                one.models,
                one.since or None,
                one.speed.value if one.speed.n else None,
                one.speed.low,
                one.speed.high,
                one.bound,
                one.agreement if one.speed.n else None,
                one.agreement_bound,
                one.speed.n,
                one.convinces,
            )
            for one in self.evidence
        )
        kernels = tuple(
            (
                one.name,
                one.rule,
                one.calls,
                one.estimate_s * 1e6,
                one.learned_s * 1e6,
                one.choice or None,
                one.gain,
            )
            for one in self.kernels
        )
        power = tuple(
            (
                one.rule,
                one.programs,
                *(one.median_w, one.least_w, one.most_w),
                *(one.same_tasks.learned, one.same_tasks.constant, one.same_tasks.allows),
                *(one.other_tasks.learned, one.other_tasks.constant, one.other_tasks.convinces),
            )
            for one in self.power
        )
        return (
            Table(
                "taught",
                "What the board has taught",
                (
                    *("rule", "programs", "models", "since"),
                    *("speed", "low", "high", "bound"),
                    *("agreement", "agreement_bound", "tasks", "used"),
                ),
                rules,
            ),
            Table(
                "estimates",
                "Estimates without and with the board's measurements",
                ("kernel", "rule", "calls", "estimate_us", "learned_us", "choice", "gain"),
                kernels,
            ),
            Table(
                "power",
                "What the board has taught about power",
                (
                    *("rule", "programs", "median_w", "least_w", "most_w"),
                    *("same_tasks_error", "same_tasks_constant", "same_tasks_used"),
                    *("other_tasks_error", "other_tasks_constant", "other_tasks_used"),
                ),
                power,
            ),
        )


def taught_about(
    kernels: Sequence[BuiltKernel],
    observations: Iterable[Observation],
    profile: DeviceProfile,
    seed: int,
) -> Taught:
    """What measured programs say of the kernels of a model.

    Another program is looked for where a deployment would: the evidence for the kernel's rule convinces, and
    the kernel itself was not measured.

    Args:
        kernels: of the model.
        observations: measured programs of any kernels on the device, the latest last.
        profile: of the device.
        seed: of random programs that are looked at.
    """
    wanted = with_part_rules({one.space.rule.name for one in kernels})
    known = list(observations)
    estimate = LearnedEstimate([one for one in known if one.rule in wanted])
    # Of all rules, whose median a rule's watts are relative to.
    power = LearnedPower.of(known)
    rules = [] if power is None else [one for rule, one in power.rules.items() if rule in wanted]
    evidence = sorted(evidence_for(estimate), key=lambda one: -one.programs)
    convincing = convincing_rules(evidence)
    found = [
        _estimated(one, estimate, profile, seed, one.space.rule.name in convincing and not one.measured)
        for one in kernels
        if with_part_rules([one.space.rule.name]) & estimate.processes.keys()
    ]
    found.sort(key=lambda one: -one.calls * one.estimate_s)
    powers = sorted(map(TaughtPower.of, rules), key=lambda one: -one.programs)
    return Taught(tuple(evidence), tuple(found), power=tuple(powers))


def _estimated(
    kernel: BuiltKernel, estimate: LearnedEstimate, profile: DeviceProfile, seed: int, look: bool
) -> KernelEstimate:
    space, values = kernel.space, kernel.values
    changed: tuple[tuple[str, int, int], ...] = ()
    gain = 1.0
    if look:
        other, faster = first_program(estimate, space, profile, values, seed)
        changed = tuple((name, values[name], value) for name, value in other.items() if value != values[name])
        gain = faster if changed else 1.0
    learned = float(np.exp(estimate.means(space, [values])[0]))
    name, rule = kernel.name, space.rule.name
    return KernelEstimate(name, rule, kernel.calls, space.estimate_s(values), learned, changed, gain)
