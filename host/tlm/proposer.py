"""The language model as a proposer."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from host.model import Candidate, DeviceProfile, Measurement
from host.schedules.design import DesignSpace
from host.schedules.proposer import Estimate
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.ranking import Ranking, ScoredProgram, ranked, score

if TYPE_CHECKING:
    from host.tlm.model.decoding import Decoder, GeneratedProgram
    from host.tlm.model.gpt2 import LanguageModel
    from host.tlm.model.joined_decoding import JoinedDecoder

# Programs of a round, and rounds at most until there are enough.
BATCH, ROUNDS = 32, 4
# The share of a round that is drawn near the best program so far, where an estimate says which one that is.
INFILLED = 1 / 4
# Programs that are drawn near another one for each that is taken: some are known already.
_SPARE = 2


def boldness(turn: int) -> float:
    """Temperature of a round of draws over that of the first: what a sure model draws may all be measured."""
    return 1.0 + turn / 2.0


class _Weights:
    """A trained model that is read when it is first used, and once."""

    def __init__(self, checkpoint: Path, vocabulary: Vocabulary) -> None:
        self._checkpoint, self._vocabulary = checkpoint, vocabulary
        self._model: LanguageModel | None = None

    def loaded(self) -> LanguageModel:
        """The model.

        Raises:
            TlmError: the checkpoint cannot be used.
        """
        if self._model is None:
            # Not at the top: torch takes seconds to import; the class alone needs neither.
            from host.tlm.model.network import load_model

            self._model, _ = load_model(self._checkpoint, self._vocabulary)
        return self._model


class Tlm:
    """Proposes candidates without measuring, the most promising first; see `ranking`.

    Args:
        checkpoint: folder of a trained model, which is read for the first candidate.
        temperature: of the draws after the likeliest program.
        estimate: seconds, or another cost, of one call of a program; without it the likeliest programs come
            first.
        ranking: weights of estimate, likelihood and variety.
        mixed: whether half of the parts of a chain are drawn uniformly where an estimate ranks.
    """

    def __init__(
        self,
        checkpoint: Path,
        temperature: float = 1.0,
        estimate: Estimate | None = None,
        ranking: Ranking | None = None,
        mixed: bool = True,
    ) -> None:
        self.name = "tlm"
        self._mixed = mixed
        self._temperature = temperature
        self._estimate = estimate
        self._ranking = ranking or Ranking()
        self._vocabulary = Vocabulary()
        self._weights = _Weights(checkpoint, self._vocabulary)

    def by(self, estimate: Estimate | None) -> Tlm:
        """See `EstimatingProposer.by`; both have the same weights in memory."""
        other = copy.copy(self)
        other._estimate = estimate
        return other

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
            for one in ranked(written, self._ranking_of(space), k)
        ]

    def _written(
        self, space: DesignSpace, measured: set[tuple[int, ...]], k: int, seed: int
    ) -> list[ScoredProgram]:
        """Different unmeasured programs, at least `k` if there are so many."""
        from host.tlm.model.decoding import Decoder

        decoder, ranking = self._decoder(space), self._ranking_of(space)
        size = max(BATCH, k)
        found = _Found(space, self._estimate, measured, size)
        for turn in range(ROUNDS):
            known = len(found.unmeasured)
            temperature = self._temperature * boldness(turn)
            infilled = 0 if self._estimate is None else round(INFILLED * size)
            found.add(decoder.draw(size - infilled, seed + turn, temperature), size - infilled)
            if infilled:
                [best] = ranked(found.scored, ranking, 1)
                if isinstance(decoder, Decoder):
                    # The model decides anew what one decision of the best so far should be.
                    near = decoder.draw(_SPARE * infilled, seed + turn + ROUNDS, temperature, best.values)
                else:
                    near = decoder.exchanged(best.values, partial(found.score, ranking=ranking))
                found.add(near, infilled)
            if len(found.unmeasured) >= k or (turn and len(found.unmeasured) == known):
                break
        return found.unmeasured

    def _decoder(self, space: DesignSpace) -> Decoder | JoinedDecoder:
        from host.tlm.model.decoding import Decoder
        from host.tlm.model.joined_decoding import JoinedDecoder

        model = self._weights.loaded()
        if space.parts:
            return JoinedDecoder(model, self._vocabulary, space, self._mixes(space))
        return Decoder(model, self._vocabulary, space)

    def _mixes(self, space: DesignSpace) -> bool:
        return bool(space.parts) and self._mixed and self._estimate is not None

    def _ranking_of(self, space: DesignSpace) -> Ranking:
        """Where half of the parts are drawn uniformly, the estimate alone decides between them."""
        return replace(self._ranking, likelihood=0.0) if self._mixes(space) else self._ranking


class _Found:
    """Different programs of a space with their estimates.

    Args:
        space: of the task.
        estimate: seconds of one call, if there is an estimate.
        measured: values of the programs that were measured.
        most: unmeasured programs at most.
    """

    def __init__(
        self, space: DesignSpace, estimate: Estimate | None, measured: set[tuple[int, ...]], most: int
    ) -> None:
        self._space, self._estimate, self._measured, self._most = space, estimate, measured, most
        self._names = [decision.name for decision in space.decisions]
        self._programs: dict[tuple[int, ...], ScoredProgram] = {}

    @property
    def scored(self) -> list[ScoredProgram]:
        """All of them, those that were measured too."""
        return list(self._programs.values())

    @property
    def unmeasured(self) -> list[ScoredProgram]:
        """Those that were not measured before."""
        return [one for one in self._programs.values() if one.values not in self._measured]

    def add(self, written: Sequence[GeneratedProgram], most: int) -> None:
        """Add programs, `most` new unmeasured ones at most, as long as there is room."""
        room = min(most, self._most - len(self.unmeasured))
        for one in written:
            if one.values in self._programs:
                continue
            if one.values not in self._measured:
                if not room:
                    break
                room -= 1
            self._programs[one.values] = self._estimated(one)

    def score(self, one: GeneratedProgram, ranking: Ranking) -> float:
        """By which a program is ranked, whether it was added or not."""
        return score(self._programs.get(one.values) or self._estimated(one), ranking)

    def _estimated(self, one: GeneratedProgram) -> ScoredProgram:
        values = dict(zip(self._names, one.values, strict=True))
        seconds = math.nan if self._estimate is None else self._estimate(self._space, values)
        return ScoredProgram(one.values, one.log_probability, seconds)
