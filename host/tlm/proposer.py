"""The language model as a proposer."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from host.model import Candidate, DeviceProfile, Measurement
from host.schedules.design import DesignSpace
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.ranking import Estimate, Ranking, ScoredProgram, ranked

if TYPE_CHECKING:
    from host.tlm.model.gpt2 import LanguageModel

# Programs written at once, and how often at most until there are enough different ones.
BATCH, ROUNDS = 32, 4


def boldness(turn: int) -> float:
    """Temperature of a round of draws over that of the first: a sure model would repeat itself."""
    return 1.0 + turn / 2.0


class Tlm:
    """Proposes candidates without measuring, the most promising first; see `ranking`.

    Args:
        checkpoint: folder of a trained model, which is read for the first candidate.
        temperature: of the draws after the likeliest program.
        estimate: seconds of one call of a program; without it the likeliest programs come first.
        ranking: weights of estimate, likelihood and variety.
    """

    def __init__(
        self,
        checkpoint: Path,
        temperature: float = 1.0,
        estimate: Estimate | None = None,
        ranking: Ranking | None = None,
    ) -> None:
        self.name = "tlm"
        self._checkpoint = checkpoint
        self._temperature = temperature
        self._estimate = estimate
        self._ranking = ranking or Ranking()
        self._vocabulary = Vocabulary()
        self._model: LanguageModel | None = None

    def _loaded(self) -> LanguageModel:
        if self._model is None:
            # Not at the top: torch takes seconds to import; the class alone needs neither.
            from host.tlm.model.network import load_model

            self._model, _ = load_model(self._checkpoint, self._vocabulary)
        return self._model

    def propose(
        self,
        space: DesignSpace,
        profile: DeviceProfile,
        history: Sequence[tuple[Candidate, Measurement]],
        k: int,
        seed: int,
    ) -> list[Candidate]:
        """Up to `k` different candidates, most promising first, none that was measured before.

        Raises:
            ScheduleError: the space has no decisions or no legal program.
            TlmError: the checkpoint cannot be used, or its language cannot express the task.
        """
        names = [decision.name for decision in space.decisions]
        measured = {tuple(int(one.value(name)) for name in names) for one, _ in history}
        text = f"{space.task.workload_hash}/{profile.board.name}/{seed}"
        number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
        written = self._written(space, measured, k, number)
        return [
            space.candidate(dict(zip(names, one.values, strict=True)), self.name, one.estimate_s)
            for one in ranked(written, self._ranking, k)
        ]

    def _written(
        self, space: DesignSpace, measured: set[tuple[int, ...]], k: int, seed: int
    ) -> list[ScoredProgram]:
        """Different unmeasured programs, at least `k` if there are so many."""
        from host.tlm.model.decoding import generate

        names = [decision.name for decision in space.decisions]
        found: dict[tuple[int, ...], ScoredProgram] = {}
        model = self._loaded()
        for turn in range(ROUNDS):
            known = len(found)
            temperature = self._temperature * boldness(turn)
            for one in generate(model, self._vocabulary, space, max(BATCH, k), seed + turn, temperature):
                if one.values not in measured and one.values not in found:
                    values = dict(zip(names, one.values, strict=True))
                    seconds = math.nan if self._estimate is None else self._estimate(space, values)
                    found[one.values] = ScoredProgram(one.values, one.log_probability, seconds)
            if len(found) >= k or (turn and len(found) == known):
                break
        return list(found.values())
