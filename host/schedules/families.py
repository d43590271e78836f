"""The families that there are, found by listing folders, and the design space of a task."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import ModuleType

from host.errors import ScheduleError, UserError
from host.extensions import extensions
from host.model import Task
from host.schedules import cpu, cuda
from host.schedules.analysis import analyse
from host.schedules.api import CPU, GPU, PARALLEL, Decision, Rule
from host.schedules.design import DesignSpace
from targets import HardwareModel


@cache
def installed_rules() -> tuple[Rule, ...]:
    """The rules of all families, by priority: those of this package and those of installed ones.

    Raises:
        UserError: an installed package's rule cannot be used.
    """
    found = [*_listed(cpu), *_listed(cuda)]
    for extension in extensions("rules").values():
        rule = extension.load(lambda one: isinstance(one, Rule), "object of host.schedules.api.Rule")
        if any(rule.name == other.name for other in found):
            raise UserError(f"{extension.title}: there is a rule {rule.name!r} already; give it another name")
        found.append(rule)
    return tuple(sorted(found, key=lambda rule: rule.priority))


def rule_versions() -> dict[str, int]:
    """The present version of every rule by name: records of others are kept, and not used.

    Raises:
        UserError: an installed package's rule cannot be used.
    """
    return {rule.name: rule.version for rule in installed_rules()}


def part_rules_of(name: str) -> Mapping[str, str]:
    """`Rule.part_rules` of the rule with this name; empty where it is not installed."""
    return next((rule.part_rules for rule in installed_rules() if rule.name == name), {})


def _listed(package: ModuleType) -> Iterator[Rule]:
    """The rules of the folders of a package."""
    for folder in pkgutil.iter_modules(package.__path__):
        if folder.ispkg:
            rule: Rule = importlib.import_module(f"{package.__name__}.{folder.name}.rule").RULE
            yield rule


def space_for(
    task: Task, hardware: HardwareModel, threads: int = 1, rules: Sequence[Rule] | None = None
) -> DesignSpace:
    """The design space of a task on a processor.

    Args:
        task: the unscheduled task.
        hardware: the processor; with a GPU, programs are made for that.
        threads: threads that the program may use.
        rules: to be tried in this order; None for all that are installed.

    Raises:
        ScheduleError: no rule matches, or the one that does leaves a decision without choices; the task is
            left to a default schedule.
        UserError: an installed package's rule cannot be used.
    """
    hardware = hardware.with_weights(task.model_weights_bytes)
    workload = analyse(task.function)
    processor = CPU if hardware.gpu is None else GPU
    for rule in installed_rules() if rules is None else rules:
        if rule.processor == processor and rule.matches(workload, hardware):
            choices = rule.choices(workload, hardware)
            kinds = [kind for kind in rule.decisions if threads > 1 or not kind.of_threads]
            open_here = [kind for kind in kinds if kind.name in choices]
            for kind in open_here:
                if not choices[kind.name]:
                    raise ScheduleError(f"rule {rule.name} leaves no choice of {kind.name} for {task.name}")
            decisions = tuple(Decision(kind, choices[kind.name]) for kind in open_here)
            if threads > 1 and processor == CPU:
                decisions = (*decisions, Decision(PARALLEL, (1, threads)))
            return DesignSpace(task, workload, hardware, threads, rule, decisions)
    raise ScheduleError(f"no rule matches {task.name} (stages: {', '.join(s.name for s in workload.stages)})")
