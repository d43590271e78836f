"""How fast a language model reads a prompt and writes a text: plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StepSpeed:
    """A step, which reads one token and gives the logits of the next one.

    Attributes:
        behind: tokens that the state has before it.
        seconds: of one step.
        joules: of one step; None where the device has no sensor.
    """

    behind: int
    seconds: float
    joules: float | None = None


@dataclass(frozen=True)
class TextSpeed:
    """The times of texts on the device, by its own clock.

    Attributes:
        steps: the shortest text first.
        prompt_tokens: of a prompt of which nothing was computed before.
        prompt_s: seconds until the token behind it is known.
        step_bytes: of weights that a step reads.
        read_bytes_s: that the device reads from its memory in a second, by its calibration; None of a GPU.
    """

    steps: tuple[StepSpeed, ...]
    prompt_tokens: int
    prompt_s: float
    step_bytes: int
    read_bytes_s: float | None = None

    @property
    def prompt_tokens_s(self) -> float:
        """Tokens of a prompt that are read in a second."""
        return self.prompt_tokens / self.prompt_s

    @property
    def bandwidth_share(self) -> float | None:
        """Bytes of weights that steps of the shortest text read in a second, over what the device can read.

        It can be above 1 where weights lie in a cache in part.
        """
        if not self.read_bytes_s:
            return None
        return self.step_bytes / self.steps[0].seconds / self.read_bytes_s
