"""The share of valid programs among those that the language model writes first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from host.errors import ScheduleError, TlmError
from host.tlm.language.vocabulary import Vocabulary

if TYPE_CHECKING:
    from host.schedules import DesignSpace

# Programs of a task: what decoding writes at once.
_WRITTEN = 32


@dataclass(frozen=True)
class Validity:
    """Numbers of written programs, and of those that apply to their task.

    Attributes:
        written, valid: their numbers.
    """

    written: int = 0
    valid: int = 0

    def __add__(self, other: Validity) -> Validity:
        return Validity(self.written + other.written, self.valid + other.valid)

    @property
    def share(self) -> float | None:
        """Share of valid programs; None if none were written."""
        return self.valid / self.written if self.written else None


class Writer:
    """A language model that writes programs without a proposer.

    Args:
        checkpoint: of the model.

    Raises:
        TlmError: it cannot be used.
    """

    def __init__(self, checkpoint: Path) -> None:
        from host.tlm.model.network import load_model

        self._vocabulary = Vocabulary()
        self._model, _ = load_model(checkpoint, self._vocabulary)

    def check(self, space: DesignSpace, seed: int) -> Validity:
        """Write programs of a task and apply each; a task that the language cannot express has none."""
        from host.tlm.model.decoding import generate

        names = [decision.name for decision in space.decisions]
        try:
            written = generate(self._model, self._vocabulary, space, _WRITTEN, seed)
        except (ScheduleError, TlmError):
            return Validity()
        valid = 0
        for one in written:
            values = dict(zip(names, one.values, strict=True))
            try:
                space.apply(space.candidate(values, "tlm"))
            except ScheduleError:
                continue
            valid += 1
        return Validity(len(written), valid)
