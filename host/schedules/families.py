"""Rules in the order in which they are tried; the first that matches a task makes its design space."""

from __future__ import annotations

from host.errors import ScheduleError
from host.model import Task
from host.schedules.analysis import analyse
from host.schedules.cpu.dot.rule import Dot
from host.schedules.cpu.injective.rule import Injective
from host.schedules.cpu.rowwise.rule import Rowwise
from host.schedules.cpu.tiled.rule import Tiled
from host.schedules.cpu.winograd.rule import Winograd
from host.schedules.cuda.injective.rule import CudaInjective
from host.schedules.cuda.rowwise.rule import CudaRowwise
from host.schedules.cuda.tiled.rule import CudaTiled
from host.schedules.design import PARALLEL, Decision, DesignSpace, Rule
from targets import HardwareModel

RULES: tuple[Rule, ...] = (Winograd(), Dot(), Tiled(), Rowwise(), Injective())
CUDA_RULES: tuple[Rule, ...] = (CudaTiled(), CudaRowwise(), CudaInjective())


def space_for(task: Task, hardware: HardwareModel, threads: int = 1) -> DesignSpace:
    """The design space of a task on a processor.

    Args:
        task: the unscheduled task.
        hardware: the processor; with a GPU, programs are made for that.
        threads: threads that the program may use.

    Raises:
        ScheduleError: no rule matches; the task is left to a default schedule.
    """
    workload = analyse(task.function)
    for rule in RULES if hardware.gpu is None else CUDA_RULES:
        if rule.matches(workload, hardware):
            decisions = rule.decisions(workload, hardware, threads)
            if threads > 1 and hardware.gpu is None:
                # Waking the other threads costs more than a short call.
                decisions = (*decisions, Decision(PARALLEL, (1, threads)))
            return DesignSpace(task, workload, hardware, threads, rule, decisions)
    raise ScheduleError(f"no rule matches {task.name} (stages: {', '.join(s.name for s in workload.stages)})")
