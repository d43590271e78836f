"""When work that was promised a budget of time has to end."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Deadline:
    """A moment by which work ends; never without arguments.

    Attributes:
        end_s: in seconds of `time.monotonic`; infinite for never.
    """

    end_s: float = math.inf

    @classmethod
    def after(cls, seconds: float, begun_s: float) -> Deadline:
        """The moment `seconds` after `begun_s` of `time.monotonic`; never if `seconds` is 0."""
        return cls(begun_s + seconds) if seconds else cls()

    @property
    def left_s(self) -> float:
        """Seconds that are left: infinite for never, negative where it is past."""
        return self.end_s - time.monotonic()

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return self.left_s <= 0

    def earlier(self, seconds: float) -> Deadline:
        """The moment so many seconds before this one."""
        return Deadline(self.end_s - seconds)
