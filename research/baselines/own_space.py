"""This project's design spaces for MetaSchedule's evolutionary search.

The stock mutators change perfect tiles and unroll steps. Programs of these design spaces have categorical
decisions, some of which change the structure of the program. A program therefore has its decisions as an
annotation, and the mutator makes a new program from changed decisions. Gensor could have proposed every
program that the search visits.
"""

from __future__ import annotations

import json
import random
from typing import Any

import tvm
from tvm import s_tir
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from host.schedules import DesignSpace
from host.schedules.api import Sampler
from research.metaschedule import workload_module

_ANNOTATION = "edgetlm_decisions"
_ATTEMPTS = 50


class _FixedSampler(Sampler):
    """Uses plain numbers instead of sampling instructions: a replay gives the same program."""

    def sample(self, name: str) -> int:
        """The value of the decision, which is fixed: nothing is drawn."""
        return self.value(name)


def program_of(space: DesignSpace, values: dict[str, int], module: tvm.IRModule) -> s_tir.Schedule:
    """The program of legal decisions, annotated with them.

    Args:
        space: of the task.
        values: the decisions.
        module: the task in the form of the search (see `workload_module`), referenced by the caller.
    """
    schedule = s_tir.Schedule(module, debug_mask="none", error_render_level="none")
    settled = _FixedSampler(schedule, space.decisions, values)
    space.rule.apply(settled, space.workload, space.hardware, space.threads)
    schedule.annotate(schedule.get_sblock("root"), _ANNOTATION, json.dumps(values))
    return schedule


def decisions_of(trace: Any) -> dict[str, int]:
    """The decisions that a trace was made from.

    Raises:
        KeyError: it is not of such a program.
    """
    for instruction in reversed(trace.insts):
        if instruction.kind.name == "Annotate" and str(instruction.attrs[0]) == _ANNOTATION:
            return {str(name): int(value) for name, value in json.loads(str(instruction.inputs[1])).items()}
    raise KeyError("a trace without decisions")


@derived_object
class OwnSpace(ms.space_generator.PySpaceGenerator):  # type: ignore[misc]
    """Random programs of a design space as the initial sketches of the search.

    Args:
        space: of the task.
        seed: of the draws.
        population: programs to draw; as many as the stock search draws anew.
    """

    def __init__(self, space: DesignSpace, seed: int, population: int = 512) -> None:
        super().__init__()
        self.space, self.seed, self.population = space, seed, population
        self.sch_rules: list[Any] = []
        self.postprocs: list[Any] = []
        self.mutator_probs = {DecisionMutator(space, seed): 1.0}

    def _initialize_with_tune_context(self, context: Any) -> None:
        """Required by MetaSchedule; the context is not used."""

    def generate_design_space(self, mod: Any) -> list[s_tir.Schedule]:
        """Draw `population` random programs; those that are equal count once."""
        generator = random.Random(self.seed)
        drawn = (self.space.sample(generator) for _ in range(self.population))
        distinct = {tuple(values.items()): values for values in drawn}
        return [program_of(self.space, values, mod) for values in distinct.values()]

    def clone(self) -> OwnSpace:
        """A generator of the same programs."""
        return OwnSpace(self.space, self.seed, self.population)


@derived_object
class DecisionMutator(ms.mutator.PyMutator):  # type: ignore[misc]
    """Changes one decision to another legal value.

    Args:
        space: of the task.
        seed: of the choices.
    """

    def __init__(self, space: DesignSpace, seed: int) -> None:
        super().__init__()
        self.space = space
        self.seed = seed
        self.generator = random.Random(seed)
        self.module = workload_module(space.task.function, space.task.flops)
        # The same programs come up again and again, in small spaces above all.
        self.traces: dict[tuple[tuple[str, int], ...], Any] = {}

    def _initialize_with_tune_context(self, context: Any) -> None:
        """Required by MetaSchedule; the context is not used."""

    def apply(self, trace: Any, _: Any) -> Any:
        """The trace of a program that differs in one decision; None if none was found."""
        changed = mutated(self.space, decisions_of(trace), self.generator)
        if changed is None:
            return None
        key = tuple(changed.items())
        if key not in self.traces:
            self.traces[key] = program_of(self.space, changed, self.module).trace
        return self.traces[key]

    def clone(self) -> DecisionMutator:
        """A mutator that makes the same choices from the start."""
        return DecisionMutator(self.space, self.seed)


def mutated(space: DesignSpace, values: dict[str, int], generator: random.Random) -> dict[str, int] | None:
    """Legal decisions that differ from the given ones in one value, or None if no draw found any."""
    free = [decision for decision in space.decisions if len(decision.choices) > 1]
    for _ in range(_ATTEMPTS if free else 0):
        decision = generator.choice(free)
        changed = {**values, decision.name: generator.choice(decision.choices)}
        if changed != values and space.legal(changed):
            return changed
    return None
