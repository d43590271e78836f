"""Programs of kernels without a record, chosen by earlier measurements of the board."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from host.compile.static_model import Plan
from host.compile.tuning.proposers import BAYESIAN, GENSOR, TLM
from host.engines import unavailable
from host.errors import EdgeError, TlmError, one_line
from host.model import Candidate, DeviceProfile
from host.options.objective import power_exponent
from host.progress import StageClock
from host.records import Record, profile_data
from host.records.place import is_there
from host.records.record import of_one_kind

if TYPE_CHECKING:
    from host.learned_estimate.estimate import LearnedEstimate
    from host.learned_estimate.evidence import Evidence
    from host.learned_estimate.observation import Observation
    from host.schedules.design import DesignSpace
    from host.schedules.proposer import Proposer

# Programs of the language model that the learned estimate chooses from: of a batch, so that one is enough.
WRITTEN = 16


def learn_from_others(
    plan: Plan,
    profile: DeviceProfile,
    records: str | Path,
    seed: int,
    clock: StageClock,
    objective: str = "latency",
) -> Plan:
    """Choose the programs of kernels without a record by the board's measurements of other kernels.

    The language model's first program takes the place of Gensor's where its first programs are shown to be
    faster on this board. Kernels of a rule whose learned estimate is shown to make first programs faster
    (`host.learned_estimate.evidence`) get the program that it chooses, of the language model's programs too
    if those were faster. With another objective than latency, what is less is the cost
    (`host.options.objective`).
    """
    open_tasks = plan.chosen.keys() - plan.from_database
    if not open_tasks or not is_there(records):
        return plan
    from host.learned_estimate.observation import observations_of
    from host.records import RecordStore
    from host.schedules.families import rule_versions

    with RecordStore(records) as store:
        known = tuple(store.select(profile_data(profile), rule_versions(), failed=True))
    exponent = power_exponent(objective)
    model = _faster_model(known, profile, clock, exponent)
    plan, rules = by_learned_estimate(
        plan, open_tasks, observations_of(known), profile, seed, clock, model, exponent
    )
    left = {key for key in open_tasks if plan.spaces[key].rule.name not in rules}
    return plan if model is None else take_first_programs(model, plan, left, profile, seed, clock)


def by_learned_estimate(
    plan: Plan,
    tasks: Collection[str],
    observations: Sequence[Observation],
    profile: DeviceProfile,
    seed: int,
    clock: StageClock,
    model: Proposer | None = None,
    exponent: float = 0.0,
) -> tuple[Plan, set[str]]:
    """The plan with the learned estimate's programs for some tasks, and the rules that it chose for.

    Args:
        plan: with a program for each task.
        tasks: workload hashes.
        observations: measured programs of other tasks on the device.
        profile: of the device.
        seed: of random programs that are looked at.
        clock: counts the stage; its progress gets a note for each rule whose evidence convinces.
        model: a proposer whose programs are looked at too, of which the best by the estimate is to beat; None
            for none.
        exponent: of watts in the cost that programs are chosen by.
    """
    from host.learned_estimate.estimate import LearnedEstimate
    from host.learned_estimate.evidence import convincing_rules, evidence_for
    from host.learned_estimate.joined import with_part_rules

    wanted = {plan.spaces[key].rule.name for key in tasks}
    teaching = with_part_rules(wanted)
    estimate = LearnedEstimate([one for one in observations if one.rule in teaching], exponent)
    evidence = {one.rule: one for one in evidence_for(estimate)}
    rules = convincing_rules(list(evidence.values())) & wanted
    if not rules:
        return plan, rules
    chosen = dict(plan.chosen)
    changed = dict.fromkeys(rules, 0)
    with clock.stage("propose"):
        for key in sorted(tasks):
            space = plan.spaces[key]
            if space.rule.name not in rules:
                continue
            found = _chosen_by(estimate, space, profile, chosen[key], seed, clock, model)
            changed[space.rule.name] += found.proposer == BAYESIAN
            chosen[key] = found
    for rule in sorted(rules):
        own = evidence.get(rule)
        if own is not None and own.convinces:
            clock.progress.note(_evidence_text(own, changed[rule], estimate.power is not None))
        else:
            clock.progress.note(_parts_text(rule, changed[rule]))
    return replace(plan, chosen=chosen), rules


def _chosen_by(
    estimate: LearnedEstimate,
    space: DesignSpace,
    profile: DeviceProfile,
    given: Candidate,
    seed: int,
    clock: StageClock,
    model: Proposer | None,
) -> Candidate:
    """The program that a learned estimate chooses, else the model's best by the estimate, else the given one.

    The model draws near the program that is the best by the learned estimate, and ranks by it. So its
    programs count as found by that estimate, but for the one that the estimate of the space puts first.
    """
    from host.learned_estimate.observation import values_of
    from host.learned_estimate.search import first_program

    written = [] if model is None else _proposed(_by(estimate, model), space, profile, WRITTEN, seed, clock)
    begin = min(written, key=lambda one: space.estimate_s(values_of(one)), default=given)
    known = [] if begin is given else [values_of(given)]
    others = [values_of(one) for one in written if one is not begin]
    values, _ = first_program(estimate, space, profile, values_of(begin), seed, known, others)
    proposer = next((one.proposer for one in (begin, given) if values == values_of(one)), BAYESIAN)
    return space.candidate(values, proposer, space.estimate_s(values))


def _by(estimate: LearnedEstimate, proposer: Proposer) -> Proposer:
    """The proposer by a learned estimate, if it takes one."""
    from host.schedules.proposer import EstimatingProposer

    return proposer.by(estimate.cost_s) if isinstance(proposer, EstimatingProposer) else proposer


def _evidence_text(evidence: Evidence, changed: int, with_power: bool) -> str:
    speed = evidence.speed
    return (
        f"rule {evidence.rule}: {evidence.programs} measured programs of other kernels on this board choose "
        f"the programs of {changed} kernels; on withheld ones they made the first program {speed.value:.2f} "
        f"times as {_good(with_power)} ({speed.low:.2f} to {speed.high:.2f})"
    )


def _parts_text(rule: str, changed: int) -> str:
    from host.schedules.families import part_rules_of

    by = " and ".join(sorted(set(part_rules_of(rule).values())))
    what = f"measured programs of rule {by}, as its parts are"
    return f"rule {rule}: {what}, choose the programs of {changed} kernels"


def _good(with_power: bool) -> str:
    return "good by seconds and watts" if with_power else "fast"


def _faster_model(
    known: Sequence[Record], profile: DeviceProfile, clock: StageClock, exponent: float
) -> Proposer | None:
    """The language model, where its first programs are shown to be faster than Gensor's on this board.

    With an exponent of watts, they have to cost less. First programs are those without a measurement yet, of
    the tasks for which both have made one (`host.tuning.proposers.trials.first_program_speed`); a note says
    what they show.
    """
    from host.learned_estimate.evidence import shows_gain
    from host.tuning.history import trial_of, trials_by_cost
    from host.tuning.proposers.trials import first_program_speed

    counted = of_one_kind(known)
    trials = trials_by_cost(counted, list(map(trial_of, counted)), exponent)
    speed = first_program_speed(trials, TLM, GENSOR)
    if not shows_gain(speed):
        return None
    model, _ = language_model(profile, clock.progress.note)
    if model is not None:
        clock.progress.note(
            f"the language model proposes: on {speed.n} kernels of this board its first programs were "
            f"{speed.value:.2f} times as {_good(exponent > 0)} as Gensor's "
            f"({speed.low:.2f} to {speed.high:.2f})"
        )
    return model


def take_first_programs(
    proposer: Proposer,
    plan: Plan,
    tasks: Collection[str],
    profile: DeviceProfile,
    seed: int,
    clock: StageClock,
) -> Plan:
    """The plan with a proposer's first program for each of some tasks; it keeps the others."""
    if not tasks:
        return plan
    chosen = dict(plan.chosen)
    with clock.stage("propose"):
        for key in sorted(tasks):
            proposed = _proposed(proposer, plan.spaces[key], profile, 1, seed, clock)
            chosen[key] = proposed[0] if proposed else chosen[key]
    return replace(plan, chosen=chosen)


def _proposed(
    proposer: Proposer, space: DesignSpace, profile: DeviceProfile, count: int, seed: int, clock: StageClock
) -> list[Candidate]:
    """Programs of a proposer, the first one first; none, with a note, where it fails."""
    try:
        return proposer.propose(space, profile, (), count, seed)
    except EdgeError as error:
        clock.progress.note(f"{proposer.name} proposes nothing, gensor's program is used: {one_line(error)}")
        return []


def language_model(profile: DeviceProfile, note: Callable[[str], None]) -> tuple[Proposer | None, str]:
    """The language model for a device with the digest of its weights; None where there is none to use."""
    from host.schedules.design import DesignSpace
    from host.tlm.model.card import read_card
    from host.tlm.model.checkpoints import model_for
    from host.tlm.proposer import Tlm

    if reason := unavailable("torch"):
        note(f"the language model is not used: {reason}; pip install 'edgetlm[torch]' adds it")
        return None, ""
    try:
        checkpoint = model_for(profile, note=note)
        return Tlm(checkpoint, estimate=DesignSpace.estimate_s), read_card(checkpoint).weights
    except TlmError as error:
        note(f"the language model is not used: {one_line(error)}")
        return None, ""
