"""Relative speeds of boards of one kind, from reference programs that every board measures.

Every board times the same programs when it joins, when it comes back and after a number of trials. The group
is the largest set of boards whose speeds agree; times are relative to its geometric mean. The times of a
board in the group are divided by its factor. A board whose speed differs by more than the tolerance measures
nothing until it is back within the tolerance: it throttles, does other work, or is a different machine.
"""

from __future__ import annotations

from collections.abc import Sequence

from host.statistics import geometric_mean

# A board may be off by so much.
TOLERANCE = 0.10
_EVERY = 25


class BoardSpeeds:
    """The reference times of the boards; the caller has the lock.

    Args:
        tolerance: largest relative difference within the group.
        every: trials of a board between two readings.

    Attributes:
        settled: whether the group is known.
    """

    def __init__(self, tolerance: float = TOLERANCE, every: int = _EVERY) -> None:
        self.every = every
        self.settled = False
        self._tolerance = tolerance
        self._times: dict[str, tuple[float, ...]] = {}
        self._centre: tuple[float, ...] = ()
        self._excluded: set[str] = set()

    def read(self, name: str, times_s: Sequence[float]) -> str:
        """Record a board's seconds of each reference, 0 if it failed; returns a note, or ""."""
        self._times[name] = tuple(times_s)
        return self._judged(name) if self.settled else ""

    def forget(self, name: str) -> None:
        """Remove the reading of a lost board, which is read again when it comes back."""
        self._times.pop(name, None)
        self._excluded.discard(name)

    def settle(self) -> list[str]:
        """Find the group; returns notes. Without a reading nothing changes."""
        if not self._times:
            return []
        self._take_as_group(self._largest_group())
        self.settled = True
        return [text for name in sorted(self._times) if (text := self._judged(name))]

    def usable(self, name: str) -> bool:
        """Whether a board was read and is not excluded."""
        return name in self._times and name not in self._excluded

    def factor(self, name: str) -> float:
        """Seconds of a board over seconds of the group; 1 without a reading."""
        return _ratio(self._times[name], self._centre) if name in self._times else 1.0

    def _take_as_group(self, group: Sequence[str]) -> None:
        programs = range(len(self._times[group[0]]))
        self._centre = tuple(_mean([self._times[name][one] for name in group]) for one in programs)

    def _agrees(self, name: str) -> bool:
        return abs(self.factor(name) - 1.0) <= self._tolerance

    def _judged(self, name: str) -> str:
        """Exclude a board whose speed differs, or include it again; returns a note."""
        was = name in self._excluded
        factor = self.factor(name)
        if not self._agrees(name):
            group = self._largest_group()
            if name in group and len(group) > sum(self.usable(one) for one in self._times if one != name):
                # Those that measured so far were the odd ones, or all of them have changed.
                return self._changed(group)
            self._excluded.add(name)
            return (
                ""
                if was
                else (
                    f"{name} is {_off(factor)} than the others at the same programs and measures nothing "
                    f"until it is within {self._tolerance:.0%} of them: look whether it throttles or is busy"
                )
            )
        self._excluded.discard(name)
        return f"{name} measures again: it is within {self._tolerance:.0%} of the others" if was else ""

    def _changed(self, group: Sequence[str]) -> str:
        """Use another group from now on; returns a note."""
        self._take_as_group(group)
        self._excluded = {one for one in self._times if not self._agrees(one)}
        text = f"from now on times are those of {', '.join(group)}, which agree with each other"
        return text + (f" and not with {', '.join(sorted(self._excluded))}" if self._excluded else "")

    def _largest_group(self) -> list[str]:
        """The largest set of boards that agree; among equal sets the fastest."""
        best: list[str] = []
        anchor_s = {name: _ratio(times, self._times[min(self._times)]) for name, times in self._times.items()}
        for fastest in sorted(anchor_s, key=lambda name: (anchor_s[name], name)):
            # Whoever is at an end is then still within the tolerance of the middle.
            limit = anchor_s[fastest] * (1.0 + self._tolerance)
            group = [name for name, one in anchor_s.items() if anchor_s[fastest] <= one <= limit]
            if len(group) > len(best):
                best = group
        return sorted(best)


def _ratio(times_s: Sequence[float], others_s: Sequence[float]) -> float:
    """Geometric mean of the ratios over the programs that both have a time of."""
    ratios = [a / b for a, b in zip(times_s, others_s, strict=True) if a > 0 and b > 0]
    return geometric_mean(ratios) if ratios else 1.0


def _mean(values: Sequence[float]) -> float:
    """Geometric mean of the positive values; 0 if there are none."""
    positive = [value for value in values if value > 0]
    return geometric_mean(positive) if positive else 0.0


def _off(factor: float) -> str:
    return f"{abs(factor - 1.0):.0%} {'slower' if factor > 1 else 'faster'}"
