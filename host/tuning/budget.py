"""How much a tuning may spend: trials, time, or both."""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass

from host.errors import UserError

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
# The next batch has to be expected to save this share of the model's time, or a budget of time ends early.
MIN_GAIN = 0.005
# Without a number, a batch is this part of the trials within bounds, and so large without trials; first where
# programs are measured one after the other, then where one run measures many.
_PART, _SMALLEST, _LARGEST, _WITHOUT = (8, 6), (4, 8), (32, 64), (16, 32)


# What timing the tuned model beside the untuned one takes: sessions, warm-ups and rounds, and so many runs.
_COMPARISON_S, _COMPARISON_RUNS = 10.0, 60
# Share of the time for measuring that it may have; it is left out where it needs more.
_FOR_COMPARISON = 1 / 4


def comparison_s(model_s: float) -> float:
    """Seconds of timing the tuned model beside the untuned one, where one run takes `model_s`."""
    return _COMPARISON_S + _COMPARISON_RUNS * model_s


def kept_for_comparison_s(left_s: float, model_s: float) -> float:
    """Seconds of `left_s` that measuring kernels leaves to that comparison; 0 where it has to be left out."""
    needed_s = comparison_s(model_s)
    return needed_s if needed_s <= _FOR_COMPARISON * left_s else 0.0


def parse_budget(text: str, option: str = "--budget") -> float:
    """`90s`, `3m`, `1.5h` in seconds.

    Raises:
        UserError: not of that form, or no time at all.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if seconds <= 0:
        raise UserError(f"{option} {text}: write a time as 90s, 3m or 1h")
    return seconds


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


@dataclass(frozen=True)
class Budget:
    """The limits of a tuning; earlier runs of the same tuning count against them.

    Attributes:
        trials: measurements in all, failed ones included; 0 sets no limit.
        seconds: of proposing, building, measuring and training in all; 0 sets no limit. A budget of time also
            ends when the next batch is expected to save less than 0.5% of the model's time
            (`host.tuning.scheduler.expected_saving`).
        batch: trials of one batch; 0 takes an eighth of the trials, 4 to 32.
        together: whether programs of many kernels are measured by one run; a batch without a number then has
            a sixth of the trials, 8 to 64.
    """

    trials: int = 0
    seconds: float = 0.0
    batch: int = 0
    together: bool = False

    def check(self) -> None:
        """Refuse invalid limits.

        Raises:
            UserError: a limit is negative, or there is none.
        """
        if self.trials < 0:
            raise UserError(f"--trials {self.trials}: give a number of measurements, or 0 for none")
        if not self.trials and not self.seconds:
            raise UserError("a tuning needs an end: give --trials N or --budget 3m")

    @property
    def batch_size(self) -> int:
        """Trials of a batch: as given, else a share of all trials within bounds."""
        if self.batch:
            return self.batch
        kind = int(self.together)
        if not self.trials:
            return _WITHOUT[kind]
        return min(_LARGEST[kind], max(_SMALLEST[kind], self.trials // _PART[kind]))

    @property
    def first_batch_size(self) -> int:
        """Trials of the first batch: few where time alone is the limit, so that little of it is enough."""
        return self.batch_size if self.batch or self.trials else _SMALLEST[int(self.together)]
