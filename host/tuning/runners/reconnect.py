"""When to reconnect to lost boards, and for how long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from host.errors import DeviceError
from host.tuning.runners.connection import TIME_LIMIT_S


@dataclass(frozen=True)
class ReconnectPolicy:
    """Times and limits of reconnecting to lost boards.

    Attributes:
        limit_s: measuring ends when no board has answered for so long; a board takes a minute to start again.
        first_pause_s: before the second attempt to connect; it doubles from one to the next.
        longest_pause_s: the longest time between two attempts.
        answer_limit_s: longest time of an answer; a board that takes longer hangs.
    """

    limit_s: float = 300.0
    first_pause_s: float = 1.0
    longest_pause_s: float = 30.0
    answer_limit_s: float = 3 * TIME_LIMIT_S

    def pauses(self) -> Iterator[float]:
        """Seconds before each attempt, without end: 0, then growing."""
        yield 0.0
        pause_s = self.first_pause_s
        while True:
            yield min(pause_s, self.longest_pause_s)
            pause_s = min(2 * pause_s, self.longest_pause_s)


def boards_lost_error(names: Sequence[str], reason: DeviceError | None) -> DeviceError:
    """The error that ends a tuning whose boards do not come back."""
    none = f"{names[0]} does not come back" if len(names) == 1 else f"none of {', '.join(names)} comes back"
    return DeviceError(
        f"{none} ({reason}); all measurements are stored: run the same command again when the device answers"
    )
