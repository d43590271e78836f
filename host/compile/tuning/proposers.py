"""Proposers that a user brings: an object, or the name of one that an installed package adds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from device_agent.contract.manifest import is_name
from device_agent.contract.text import printable
from host.errors import ScheduleError, UserError
from host.extensions import extensions
from host.model import Candidate, DeviceProfile, Measurement
from host.options.compile import METHODS
from host.options.objective import OBJECTIVES
from host.records import MODEL

if TYPE_CHECKING:
    from host.schedules.design import DesignSpace
    from host.schedules.proposer import Proposer

GENSOR, TLM, BAYESIAN, RANDOM = "gensor", "tlm", "bayesian", "random"
# Names that records and reports have a meaning for.
_RESERVED = (GENSOR, TLM, BAYESIAN, RANDOM, "tree", "evolutionary", "default", "user", "auto")
# What else names a tuning, beside its method (`host.tuning.history.tuning_key`).
_OF_TUNINGS = (*OBJECTIVES, MODEL)


class CheckedProposer:
    """A user's proposer whose mistakes are errors of one line, and whose programs are programs of the space.

    Args:
        proposer: the user's.
    """

    def __init__(self, proposer: Proposer) -> None:
        self.name = proposer.name
        self._proposer = proposer

    def propose(
        self,
        space: DesignSpace,
        profile: DeviceProfile,
        history: Sequence[tuple[Candidate, Measurement]],
        k: int,
        seed: int,
    ) -> list[Candidate]:
        """See `Proposer.propose`.

        Raises:
            ScheduleError: the proposer failed, or returned something that is not a program of the space.
        """
        try:
            found = list(self._proposer.propose(space, profile, history, k, seed))
        except Exception as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise ScheduleError(f"the proposer {self.name} failed on {space.task.name}: {reason}") from error
        for one in found:
            if not isinstance(one, Candidate) or not _is_program(space, one):
                raise ScheduleError(
                    f"the proposer {self.name} returned something that is not a program of {space.task.name}:"
                    f" {printable(one, 200)}; make candidates with space.candidate(decisions, name)"
                )
        return found[:k]


def _is_program(space: DesignSpace, candidate: Candidate) -> bool:
    values = {name: value for name, value in candidate.decisions if isinstance(value, int)}
    same_task = candidate.workload_hash == space.task.workload_hash and candidate.rule == space.rule.name
    return same_task and values.keys() == {one.name for one in space.decisions} and space.legal(values)


def user_proposer(asked: object) -> Proposer | None:
    """The proposer that a user asks for.

    Args:
        asked: the name of an installed one, an object of `Proposer`, or "" for none.

    Raises:
        UserError: there is no such proposer, or it is none.
    """
    if asked == "":
        return None
    return _checked(_installed(asked, "--proposer") if isinstance(asked, str) else asked)


def method_proposers(method: str) -> tuple[Proposer, ...]:
    """The proposers of a method; none for "auto", and for "tlm", which depends on the device and learns.

    Args:
        method: see `host.options.CompileOptions.method`.

    Raises:
        UserError: there is no such method, or its package cannot be used.
    """
    if method == GENSOR:
        from host.gensor import Gensor

        return (Gensor(),)
    if method == RANDOM:
        from host.tuning.proposers.random_sampling import RandomSampling

        return (RandomSampling(),)
    return () if method in METHODS else (_checked(_installed(method, "--method")),)


def _checked(found: object) -> Proposer:
    name = getattr(found, "name", None)
    if not isinstance(name, str) or not callable(getattr(found, "propose", None)):
        raise UserError(f"a {type(found).__name__} is no proposer: it needs a name and a method propose")
    if not is_name(name) or name in (*_RESERVED, *_OF_TUNINGS):
        raise UserError(f"a proposer cannot be called {printable(repr(name), 80)}; give it another name")
    return CheckedProposer(found)  # type: ignore[arg-type]


def _installed(name: str, flag: str) -> object:
    known = extensions("proposers", _RESERVED)
    if name not in known:
        names = ", ".join(known) or "none"
        raise UserError(f"{flag} {printable(name, 80)}: no package adds it; installed are: {names}")
    try:
        return known[name].load(callable, "class or function that makes a proposer")()
    except TypeError as error:
        raise UserError(
            f"{known[name].title} cannot be made: {error}; repair or remove that package"
        ) from error
