"""The families that there are, found by listing folders, and the design space of a task."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType

from host.errors import ScheduleError, UserError
from host.model import Task
from host.schedules import cpu, cuda
from host.schedules.analysis import analyse
from host.schedules.api import CPU, GPU, PARALLEL, Decision, Rule
from host.schedules.design import DesignSpace
from targets import HardwareModel

# Entry points by which an installed package adds rules; each names an object of a `Rule`.
ENTRY_POINTS = "edgetlm.rules"


@cache
def installed_rules() -> tuple[Rule, ...]:
    """The rules of all families, by priority: those of this package and those of installed ones.

    Raises:
        UserError: an installed package's rule cannot be used.
    """
    found = [*_listed(cpu), *_listed(cuda)]
    for entry in entry_points(group=ENTRY_POINTS):
        rule = _loaded(entry)
        if any(rule.name == other.name for other in found):
            raise UserError(f"{_called(entry)}: there is a rule {rule.name!r} already; give it another name")
        found.append(rule)
    return tuple(sorted(found, key=lambda rule: rule.priority))


def rule_versions() -> dict[str, int]:
    """The present version of every rule by name: records of others are kept, and not used.

    Raises:
        UserError: an installed package's rule cannot be used.
    """
    return {rule.name: rule.version for rule in installed_rules()}


def _listed(package: ModuleType) -> Iterator[Rule]:
    """The rules of the folders of a package."""
    for folder in pkgutil.iter_modules(package.__path__):
        if folder.ispkg:
            rule: Rule = importlib.import_module(f"{package.__name__}.{folder.name}.rule").RULE
            yield rule


def _loaded(entry: EntryPoint) -> Rule:
    try:
        rule = entry.load()
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise UserError(f"{_called(entry)} does not load ({what}); mend or remove that package") from error
    if not isinstance(rule, Rule):
        raise UserError(
            f"{_called(entry)} is no object of host.schedules.api.Rule; mend or remove that package"
        )
    return rule


def _called(entry: EntryPoint) -> str:
    package = entry.dist.name if entry.dist is not None else "an installed package"
    return f"the rule {entry.name} of {package} ({entry.value})"


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
        ScheduleError: no rule matches; the task is left to a default schedule.
        UserError: an installed package's rule cannot be used.
    """
    workload = analyse(task.function)
    processor = CPU if hardware.gpu is None else GPU
    for rule in installed_rules() if rules is None else rules:
        if rule.processor == processor and rule.matches(workload, hardware):
            choices = rule.choices(workload, hardware)
            decisions = tuple(Decision(kind, choices[kind.name]) for kind in rule.decisions)
            if threads > 1 and processor == CPU:
                decisions = (*decisions, Decision(PARALLEL, (1, threads)))
            return DesignSpace(task, workload, hardware, threads, rule, decisions)
    raise ScheduleError(f"no rule matches {task.name} (stages: {', '.join(s.name for s in workload.stages)})")
