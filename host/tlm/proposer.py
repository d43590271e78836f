"""The language model as a proposer."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from host.model import Candidate, DeviceProfile, Measurement
from host.space.design import DesignSpace
from host.tlm.vocabulary import Vocabulary

if TYPE_CHECKING:
    from transformers import GPT2LMHeadModel

# Programs written at once, and how often at most until there are enough different ones.
_BATCH, _ROUNDS = 32, 4


class Tlm:
    """Writes candidates without measuring; the likeliest first.

    Args:
        checkpoint: folder of a trained model; read when the first candidate is asked for.
        temperature: of the draws after the likeliest program.
    """

    def __init__(self, checkpoint: Path, temperature: float = 1.0) -> None:
        self.name = "tlm"
        self._checkpoint = checkpoint
        self._temperature = temperature
        self._vocabulary = Vocabulary()
        self._model: GPT2LMHeadModel | None = None

    def _loaded(self) -> GPT2LMHeadModel:
        if self._model is None:
            # Not at the top: torch and transformers take seconds, and whoever only names this class waits.
            from host.tlm.model import load_model

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
        """Up to `k` different candidates, likeliest first, none that was measured before.

        Raises:
            ScheduleError: the space has no decisions or no legal program.
            TlmError: the checkpoint cannot be used, or the task cannot be said in its language.
        """
        from host.tlm.decoding import generate

        names = [decision.name for decision in space.decisions]
        measured = {tuple(int(one.value(name)) for name in names) for one, _ in history}
        text = f"{space.task.workload_hash}/{profile.board.name}/{seed}"
        number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
        found: dict[tuple[int, ...], float] = {}
        model = self._loaded()
        for turn in range(_ROUNDS):
            batch = max(_BATCH, k)
            for one in generate(model, self._vocabulary, space, batch, number + turn, self._temperature):
                if one.values not in measured:
                    found[one.values] = one.log_probability
            if len(found) >= k:
                break
        ranked = sorted(found, key=lambda values: (-found[values], values))[:k]
        return [space.candidate(dict(zip(names, values, strict=True)), self.name) for values in ranked]
