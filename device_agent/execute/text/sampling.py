"""Chooses the next token of a text from the logits of a language model."""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
import sys
from typing import Any, List, NamedTuple, Sequence, Union

from device_agent.errors import AgentError

_WORD = (1 << 64) - 1


class Sampling(NamedTuple):
    """How tokens are chosen.

    Attributes:
        temperature: what logits are divided by before one is drawn; at 0 the most likely token is taken.
        top_k: draw from so many of the likeliest; 0 draws from all.
        top_p: draw from the fewest likeliest tokens whose probabilities sum up to this.
        seed: of what is drawn.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def check(self) -> None:
        """Refuses values that mean nothing.

        Raises:
            ValueError: naming the value.
        """
        if not (self.temperature >= 0.0 and math.isfinite(self.temperature)):
            raise ValueError("temperature is %r, not 0 or more" % (self.temperature,))
        if self.top_k < 0:
            raise ValueError("top_k is %r, not 0 or more" % (self.top_k,))
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError("top_p is %r, not above 0 and at most 1" % (self.top_p,))


class _Draws:
    """Numbers from 0 up to 1, by SplitMix64 (Steele et al., 2014): `generator.h` has the same for a seed.

    Args:
        seed: of the numbers, the last 64 bits of which count.
    """

    def __init__(self, seed: int) -> None:
        self._state = seed & _WORD

    def next(self) -> float:
        """The next number, of 53 bits."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _WORD
        mixed = self._state
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = ((mixed ^ (mixed >> shift)) * factor) & _WORD
        return float((mixed ^ (mixed >> 31)) >> 11) * 2.0**-53


class Sampler:
    """Chooses one token after the other.

    The same seed chooses the same tokens of the same logits as in C++, but where two are as likely within the
    rounding of an exponential.

    Args:
        how: they are chosen.

    Raises:
        ValueError: a value of `how` means nothing.
    """

    def __init__(self, how: Sampling) -> None:
        how.check()
        self._how = how
        self._draws = _Draws(how.seed)

    def choose(self, logits: Union[bytearray, memoryview]) -> int:
        """A token.

        NumPy is used where the process has it, and makes this faster; the most likely token is the same one.

        Args:
            logits: of all tokens, float32.

        Raises:
            AgentError: one is NaN or infinite, and nothing can be chosen.
        """
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            return self._with_numpy(numpy, numpy.frombuffer(logits, dtype="float32"))
        values: Any = memoryview(logits).cast("f").tolist()
        _check_finite(math.nan if any(map(math.isnan, values)) else max(values))
        if self._how.temperature == 0.0:
            return int(values.index(max(values)))
        return self._plainly(values)

    def _with_numpy(self, numpy: Any, logits: Any) -> int:
        # Of NaN and other numbers, NumPy takes NaN for the largest.
        likeliest = int(logits.argmax())
        top = float(logits[likeliest])
        _check_finite(top)
        if self._how.temperature == 0.0:
            return likeliest
        weights = numpy.exp((logits.astype("float64") - top) / self._how.temperature)
        count = self._how.top_k
        if not count and self._how.top_p == 1.0:
            sums = weights.cumsum()
            place = int(numpy.searchsorted(sums, self._draws.next() * float(sums[-1]), side="right"))
            return min(place, len(weights) - 1)
        total = float(weights.sum())
        if not count:
            least = self._least(total, len(weights))
        else:
            begin = max(0, len(weights) - count)
            least = numpy.partition(weights, begin)[begin]
        tokens = numpy.flatnonzero(weights >= least)
        # Of equal ones the first comes first, as below.
        tokens = tokens[numpy.argsort(-weights[tokens], kind="stable")][: count or None]
        return self._drawn_of_most(weights[tokens].tolist(), tokens.tolist(), total)

    def _plainly(self, logits: List[float]) -> int:
        top, count = max(logits), self._how.top_k
        weights = [math.exp((value - top) / self._how.temperature) for value in logits]
        if not count and self._how.top_p == 1.0:
            return self._drawn(weights, range(len(weights)))
        total = math.fsum(weights)
        if count:
            tokens = heapq.nlargest(count, range(len(weights)), key=weights.__getitem__)
        else:
            least = self._least(total, len(weights))
            tokens = [token for token, weight in enumerate(weights) if weight >= least]
            tokens.sort(key=lambda token: -weights[token])
        return self._drawn_of_most([weights[token] for token in tokens], tokens, total)

    def _least(self, total: float, count: int) -> float:
        """A weight that every token of `top_p` has: all with less together are less than what is left out."""
        return (1.0 - self._how.top_p) * total / count

    def _drawn_of_most(self, weights: List[float], tokens: List[int], total: float) -> int:
        """A token of the likeliest that make up `top_p`.

        Args:
            weights: of the tokens, in falling order.
            tokens: to draw from.
            total: of the weights of all tokens that there are.
        """
        if self._how.top_p < 1.0:
            sums = list(itertools.accumulate(weights))
            wanted = self._how.top_p * (sums[-1] if self._how.top_k else total)
            kept = bisect.bisect_left(sums, wanted) + 1
            weights, tokens = weights[:kept], tokens[:kept]
        return self._drawn(weights, tokens)

    def _drawn(self, weights: List[float], tokens: Sequence[int]) -> int:
        sums = list(itertools.accumulate(weights))
        place = bisect.bisect_right(sums, self._draws.next() * sums[-1])
        return int(tokens[min(place, len(tokens) - 1)])


def _check_finite(value: float) -> None:
    """Refuses the largest of some logits where it is no number."""
    if not math.isfinite(value):
        raise AgentError(
            "engine",
            "the model gives no logits behind this text, but NaN or infinity: its activations leave the "
            "range of their type; deploy it without --dtype fp16, or with --processor cpu",
        )
