"""A plan: what is decided at each site of a model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from host.model import LoweredModel, Site
from host.model.site import HALF, SINGLE, TYPE
from host.records.record import key_of

# The name under which plans are kept among the records, beside the rules of single kernels.
PLAN_RULE = "plan"
# Raised when the same decisions become other models; records of other versions are not recalled.
PLAN_VERSION = 1
_HASH_CHARACTERS = 8
# In words: kind and value of a decision.
_WORDS = {
    ("algorithm", 0): "direct",
    ("algorithm", 2): "Winograd 2x2",
    ("algorithm", 4): "Winograd 4x4",
    ("transpose", 0): "stored apart",
    ("transpose", 1): "in one kernel",
    ("inputs", 0): "stored apart",
    ("inputs", 1): "computed where it is read",
    ("slices", 0): "as a volume",
    ("slices", 1): "as images",
    ("taps", 0): "a lane for each product",
    ("taps", 1): "dot products",
    ("bands", 0): "functions of their own",
    (TYPE, SINGLE): "fp32",
    (TYPE, HALF): "halves",
}


@dataclass(frozen=True)
class ModelPlan:
    """The decisions of a plan where they are others than the passes' own.

    Attributes:
        decisions: the name of a site and the value that is taken there, by name.
        version: of the space of plans.
    """

    decisions: tuple[tuple[str, int], ...] = ()
    version: int = PLAN_VERSION

    @classmethod
    def of(cls, sites: Iterable[Site]) -> ModelPlan:
        """The plan with which a model was lowered."""
        return cls(tuple(sorted((site.name, site.taken) for site in sites if site.taken != site.own)))

    @property
    def is_own(self) -> bool:
        """Whether everything is decided by the passes."""
        return not self.decisions

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the decisions and the version."""
        return key_of([self.version, [list(one) for one in self.decisions]])

    @property
    def name(self) -> str:
        """Short, for tables."""
        return "plan of the passes" if self.is_own else f"plan {self.hash[:_HASH_CHARACTERS]}"

    def trace(self, sites: Iterable[Site]) -> str:
        """All decisions in words, sites that are alike together; departures from the passes are marked.

        Args:
            sites: of the model as it was lowered with this plan.
        """
        counts: dict[tuple[str, str, int, int], int] = {}
        for site in sites:
            key = (site.alike, site.kind, site.taken, site.own)
            counts[key] = counts.get(key, 0) + 1
        clauses = []
        for (alike, kind, taken, own), count in counts.items():
            times = f"{count} times " if count > 1 else ""
            changed = "" if taken == own else f" (the passes: {in_words(kind, own)})"
            clauses.append(f"{alike}: {times}{in_words(kind, taken)}{changed}")
        return "; ".join(clauses)


OWN = ModelPlan()


def in_words(kind: str, value: int) -> str:
    """A decision for people."""
    return _WORDS.get((kind, value), f"bands of {value} rows" if kind == "bands" else str(value))


def subject_of(lowered: LoweredModel) -> str:
    """What plans are for: SHA-256 of a model's sites and kernels as the passes make them by themselves.

    Weights have no part in it: a model that was trained again has the plan of the one before.

    Args:
        lowered: the model without a plan.
    """
    sites = [[site.name, site.alike, list(site.options), site.own] for site in lowered.sites]
    kernels = sorted([task.workload_hash, task.weight] for task in lowered.tasks)
    return key_of([PLAN_RULE, sites, kernels])
