"""Whether a board's times have drifted: its reference programs now, against those of its epoch."""

from __future__ import annotations

from dataclasses import dataclass

from host.errors import MeasureError
from host.model.reference_times import ReferenceTimes
from host.statistics import Estimate, ratio_of, spread_of

# Beyond it, a program has drifted: records of before say nothing of it.
TOLERANCE = 1.05


@dataclass(frozen=True)
class Change:
    """A reference program now.

    Attributes:
        program: its name.
        ratio: of its seconds now to those of the epoch, with 95% bounds (`host.statistics.ratio_of`).
    """

    program: str
    ratio: Estimate

    @property
    def drifted(self) -> bool:
        """Whether the whole interval lies beyond the tolerance, on either side."""
        low, high = self.ratio.low, self.ratio.high
        return low is not None and high is not None and (low > TOLERANCE or high < 1.0 / TOLERANCE)

    def __str__(self) -> str:
        """Such as "stream takes 8.1% longer"."""
        more = self.ratio.value - 1.0
        return f"{self.program} takes {abs(more):.1%} {'longer' if more > 0 else 'less'}"


def changes(epoch: ReferenceTimes, now: ReferenceTimes) -> tuple[Change, ...]:
    """Every reference program now, the one first that has changed most.

    Raises:
        MeasureError: the programs are others than those of the epoch.
    """
    if epoch.programs != now.programs or epoch.seconds.keys() != now.seconds.keys():
        raise MeasureError("its reference programs are others than in its epoch")
    found = [
        Change(name, ratio_of(spread_of(times), spread_of(epoch.seconds[name])))
        for name, times in now.seconds.items()
    ]
    return tuple(sorted(found, key=lambda one: abs(one.ratio.value - 1.0), reverse=True))


def confirmed(first: tuple[Change, ...], second: tuple[Change, ...]) -> tuple[Change, ...]:
    """The programs that have drifted in both of two measurements, to the same side, as the second has them.

    One measurement alone may have met other work on the board.
    """
    before = {one.program: one.ratio.value > 1.0 for one in first if one.drifted}
    return tuple(one for one in second if one.drifted and before.get(one.program) is (one.ratio.value > 1.0))


def system_changes(epoch: ReferenceTimes, now: ReferenceTimes) -> tuple[str, ...]:
    """What the board runs instead of what it ran, as texts such as "kernel 6.1.21 -> 6.6.31"."""
    names = sorted({*epoch.system, *now.system})
    pairs = ((name, epoch.system.get(name, "none"), now.system.get(name, "none")) for name in names)
    return tuple(f"{name} {before} -> {after}" for name, before, after in pairs if before != after)
