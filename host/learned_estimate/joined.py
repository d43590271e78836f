"""Programs whose parts are decided apart, such as chains: T_hat of the whole is the sum of that of its parts.

A part is a program of its own rule. What the board has measured of that rule's programs corrects the part, as
it corrects any program of the rule, and the whole is corrected by what its parts are:

    T_hat(whole) = T(whole) (sum of T_hat(part)) / (sum of T(part)) exp(r(whole))

r is what the rule of the whole has learned of its own programs beyond that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

import numpy as np

from device_agent.contract.limits import LIMITS
from host.learned_estimate.observation import EstimatedProgram
from host.learned_estimate.process import RuleProcess
from host.schedules.design import TOTAL
from host.schedules.families import part_rules_of

_Value = TypeVar("_Value")


def with_part_rules(rules: Collection[str]) -> set[str]:
    """Some rules, and those of the parts of their programs."""
    return {*rules, *(own for rule in rules for own in part_rules_of(rule).values())}


def parts_of(rule: str, program: EstimatedProgram) -> list[tuple[str, EstimatedProgram]]:
    """The parts of a program, each with its rule and as a program of a task of its own.

    None of a rule whose tasks have no parts, and of a record that does not say what they were estimated at,
    or says a time that no program takes.
    """
    found = []
    for prefix, own in part_rules_of(rule).items():
        estimated = _without(prefix, program.estimated_s)
        if 0.0 < estimated.get(TOTAL, 0.0) <= LIMITS.records.longest_s:
            values = _without(prefix, program.values)
            found.append((own, EstimatedProgram(f"{program.task}/{prefix}", values, estimated)))
    return found


def _without(prefix: str, named: Mapping[str, _Value]) -> dict[str, _Value]:
    """What stands under names that begin with a prefix, without it."""
    return {name.removeprefix(prefix): one for name, one in named.items() if name.startswith(prefix)}


class PartCorrections:
    """What the processes of some rules say of the parts of other programs.

    Args:
        processes: by rule.
    """

    def __init__(self, processes: Mapping[str, RuleProcess]) -> None:
        self._processes = processes
        # A search changes one part at a time and leaves the others as they are.
        self._known: dict[tuple[object, ...], float] = {}

    def of(self, rule: str, programs: Sequence[EstimatedProgram]) -> np.ndarray:
        """Logarithms of the parts' T_hat over their T, shape (programs,); 0 of a program without parts."""
        found = np.zeros(len(programs))
        if not set(part_rules_of(rule).values()) & set(self._processes):
            return found
        split = [parts_of(rule, one) for one in programs]
        self._learn([part for parts in split for part in parts])
        for number, parts in enumerate(split):
            if parts:
                seconds = np.array([one.estimate_s for _, one in parts])
                factors = np.exp([self._known[own, *one.key] for own, one in parts])
                found[number] = np.log(seconds @ factors / seconds.sum())
        return found

    def _learn(self, parts: Sequence[tuple[str, EstimatedProgram]]) -> None:
        """Looks up the residuals of parts that were not looked up before."""
        new = {(own, *one.key): one for own, one in parts if (own, *one.key) not in self._known}
        for rule in {own for own, *_ in new}:
            keys = [key for key in new if key[0] == rule]
            process = self._processes.get(str(rule))
            if process is None:
                self._known.update(dict.fromkeys(keys, 0.0))
                continue
            means = process.mean(process.points([new[key] for key in keys]))
            self._known.update(zip(keys, means.tolist(), strict=True))
