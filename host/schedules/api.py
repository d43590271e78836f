"""The interface of a rule: the decisions that it leaves open, and how they become a program.

A family is a folder of `cpu` or `cuda` whose module `rule` has a `RULE`, or an object that an installed
package names as an entry point of the group `edgetlm.rules`. Nothing else knows it: Gensor, the language
model, records and reports read what they need off the rule and its decisions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import ClassVar

from tvm import s_tir

from host.schedules.constants import EstimateConstant
from host.schedules.length_tiling import LengthTiling
from host.schedules.workload import Workload
from targets import HardwareModel

# Values by the name of their decision.
Decisions = Mapping[str, int]
CPU, GPU = "cpu", "gpu"


class Level(IntEnum):
    """Where in the memory hierarchy a decision is taken; programs are built from the innermost level on.

    REGISTER: the tile in registers, its code, and how it reads its input. BLOCK: the tiles that share what is
    in cache or in a GPU's shared memory, and the threads.
    """

    REGISTER = 0
    BLOCK = 1


class WordClass(StrEnum):
    """What the values of a decision mean; a language model starts a new word from the mean of its class.

    TILE: iterations that one part of a program takes. UNROLL: steps written out. PARALLEL: threads.
    SWITCH: one way or another.
    """

    TILE = "tile"
    UNROLL = "unroll"
    PARALLEL = "parallel"
    SWITCH = "switch"


@dataclass(frozen=True)
class DecisionKind:
    """A decision that a rule declares; which values are open depends on the task.

    Attributes:
        name: what is decided; part of records, so it is never changed without a new version of the rule.
        level: at which it is taken.
        words: the class of its word in the tensor language.
        interleaves: whether values above 1 put several tiles into one body, so that their operations do not
            wait for one another or, on a GPU, neighbouring threads touch neighbouring banks.
        starts_wide: whether constructions begin at its largest value too: what is best for other decisions
            depends on it so much that no walk of small steps from its smallest value finds it.
        of_threads: whether it says what threads share, and is open only where a program may use several.
        orders: whether it changes the order in which the elements of a sum are added up, and so the rounding.
    """

    name: str
    level: Level
    words: WordClass
    interleaves: bool = False
    starts_wide: bool = False
    of_threads: bool = False
    orders: bool = False


@dataclass(frozen=True)
class Decision:
    """A decision that is open for one task.

    Attributes:
        kind: what the rule declares of it.
        choices: legal values in increasing order; the trace holds the index of the one taken.
    """

    kind: DecisionKind
    choices: tuple[int, ...]

    @property
    def name(self) -> str:
        """The name of the decision, as candidates and records have it."""
        return self.kind.name


# Every CPU rule has it where there are several threads: how many of them share a call. Waking the other
# threads costs more than a short call.
PARALLEL = DecisionKind("parallel", Level.BLOCK, WordClass.PARALLEL)


class Sampler:
    """Enters values into a schedule as sampling instructions, so that the trace carries every decision."""

    def __init__(self, schedule: s_tir.Schedule, decisions: tuple[Decision, ...], values: Decisions) -> None:
        self.schedule = schedule
        self._open = {decision.name: decision for decision in decisions}
        self.values = values

    def value(self, name: str) -> int:
        """The value taken, for choices that change the structure of the program."""
        return self.values[name]

    def sample(self, name: str) -> object:
        """The value taken as a sampled expression of the schedule, for tile factors."""
        decision = self._open[name]
        index = decision.choices.index(self.values[name])
        share = [1.0 / len(decision.choices)] * len(decision.choices)
        return self.schedule.sample_categorical(list(decision.choices), share, decision=index)


class Rule(ABC):
    """A family of programs for the tasks of one structure.

    Attributes:
        name: in records, bundles and the tensor language.
        processor: `CPU` or `GPU`.
        version: of the programs that decisions stand for; records of other versions are kept and not used.
        priority: rules are tried by increasing priority, and the first that matches makes the design space.
        decisions: all that it may leave open, in the order of the design space.
        constants: those that its estimate reads and a board's measurements may move.
        length_tiling: where tiles of its programs may overlap, so that programs of whole tiles serve any
            length of a range, how; None where they may not.
        sized_tiles: whether programs for an open length are made of lowered ones, in which buffers of a tile
            have its size: where the length is open, TVM finds none for them.
        traced: whether the trace of a schedule, applied to the task, gives its program again; see `traces`.
        measurable: whether a call with random numbers, and with zeros for integers, takes as long as a
            typical one; programs of other rules are not chosen by measuring.
        coupled: whether several decisions are factors of one tile, so that what one of them gains another
            has to give: a construction then changes two at once as well.
        part_rules: of tasks with parts (`parts`), the name of the rule of each by what its decisions' names
            begin with. What a board has taught about that rule corrects the estimate of the part.
    """

    name: ClassVar[str]
    processor: ClassVar[str]
    version: ClassVar[int]
    priority: ClassVar[int]
    decisions: ClassVar[tuple[DecisionKind, ...]]
    constants: ClassVar[tuple[EstimateConstant, ...]] = ()
    length_tiling: ClassVar[type[LengthTiling] | None] = None
    sized_tiles: ClassVar[bool] = False
    traced: ClassVar[bool] = True
    measurable: ClassVar[bool] = True
    coupled: ClassVar[bool] = False
    part_rules: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """Whether this rule can schedule the workload."""

    @abstractmethod
    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """The open values of each declared decision, in increasing order; a task has not those left out."""

    @abstractmethod
    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """Whether values that are all among the choices fit together and fit the processor."""

    def traces(self, values: Decisions) -> bool:
        """Whether the trace of the program with these values gives it again: all or none do in most rules."""
        return self.traced

    def starts(self, workload: Workload, hardware: HardwareModel) -> Iterable[Decisions]:
        """Legal values from which constructions descend too, where small steps lead to one of them alone."""
        return ()

    def row_of(self, workload: Workload) -> Hashable | None:
        """What is the same of tasks that compute the same for each row, however many rows they have.

        None where no decision changes the order in which a row is added up.
        """
        return None

    def parts(self, workload: Workload) -> Sequence[tuple[str, Rule, Workload]]:
        """Parts of a task whose decisions are legal or not by themselves, in the order of the decisions.

        Of each part what its decisions' names begin with, the rule that has them without that, and what the
        part computes. None where a task is one.
        """
        return ()

    @abstractmethod
    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Carries the decisions out on the sampler's schedule."""

    @abstractmethod
    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call of the program, from the hardware model alone."""

    def estimate_parts_s(
        self, workload: Workload, hardware: HardwareModel, values: Decisions
    ) -> Mapping[str, float]:
        """The parts of the estimate, in seconds on one core.

        Transfers stand under the name of the memory level that delivers them; of the last level only what
        exceeds reading everything once. Empty where the rule does not separate them.
        """
        return {}
