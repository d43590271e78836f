"""Training on a host of an engine: what was trained comes back as states, from which any host goes on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from host.errors import TlmError
from host.execution import Engine, HostLost

# Steps of one call of another host: a call costs what a small part of a step does.
_STEPS_OF_A_CALL = 10
# How long a training waits for a host that can go on with it, and how often it asks.
_HOST_S, _ASK_S = 300.0, 2.0


@dataclass(frozen=True)
class Advance:
    """How far a training is.

    Attributes:
        step: batches trained on.
        loss: running mean of the loss, natural logarithm.
        withheld_loss: of the last state; NaN where there is none.
        state: from which it goes on, where the training makes one; b"" elsewhere.
    """

    step: int
    loss: float
    withheld_loss: float = math.nan
    state: bytes = b""


class Training(Protocol):
    """The object of the actor that trains; it does nothing before `begin`."""

    def begin(self, state: bytes) -> Advance:
        """Begin, or go on from a state that is not empty.

        Raises:
            TlmError: the state is damaged, or of another training.
        """

    def advance(self, steps: int) -> Advance:
        """Take some steps, at most up to the next state; none of them gives the state as it is.

        Raises:
            HostLost: it has not begun in this process: the one before it ended.
        """


@dataclass(frozen=True)
class Plan:
    """What is trained.

    Attributes:
        make: the class of a `Training`.
        arguments: of it; they are copied to the host.
        steps: in all.
        keep: called with every state.
        first: the state to begin with; b"" where the training makes its own.
        seconds: no step begins later than this; 0 for no limit.
    """

    make: Callable[..., Training]
    arguments: Sequence[object]
    steps: int
    keep: Callable[[bytes], None]
    first: bytes = b""
    seconds: float = 0.0


def train_to_the_end(engine: Engine, plan: Plan, report: Callable[[Advance], None]) -> bytes:
    """Train on a host of an engine; returns the last state.

    A training whose host ends goes on from the last state, on the next host that can.

    Args:
        engine: whose hosts train, on a GPU if one has it.
        plan: what is trained.
        report: called after each step, or after some of them where a host is another machine.

    Raises:
        TlmError: the state is damaged or of another training, or no host goes on with it.
    """
    actor = engine.actor(plan.make, *plan.arguments, trains=True)
    kept, begin, over = plan.first, time.monotonic(), False
    try:
        step, lost = None, 0.0
        while step is None or step < plan.steps:
            try:
                if step is None:
                    step = actor.call("begin", kept).step
                    continue
                count = 0 if over else _STEPS_OF_A_CALL if engine.remote else 1
                done: Advance = actor.call("advance", count)
            except HostLost as error:
                step, lost = None, lost or time.monotonic()
                if time.monotonic() - lost > _HOST_S:
                    raise TlmError(
                        f"no host goes on with the training ({error}); its state is kept: run the same "
                        "command again with --resume"
                    ) from error
                time.sleep(_ASK_S)
                continue
            step, lost = done.step, 0.0
            if done.state:
                kept = done.state
                plan.keep(kept)
            if over:
                break
            report(done)
            over = bool(plan.seconds) and time.monotonic() - begin >= plan.seconds
    finally:
        actor.end()
    return kept
