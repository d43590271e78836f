"""Chooses the next token of a text from the logits of a language model."""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
import random
import sys
from typing import Any, List, NamedTuple, Sequence, Tuple

# How many of the likeliest tokens are looked at first for those that make up `top_p`.
_FIRST = 64


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


class Sampler:
    """Chooses one token after the other.

    Args:
        how: they are chosen.

    Raises:
        ValueError: a value of `how` means nothing.
    """

    def __init__(self, how: Sampling) -> None:
        how.check()
        self._how = how
        self._random = random.Random(how.seed)

    def choose(self, logits: bytearray) -> int:
        """A token.

        NumPy is used where the process has it, and makes this faster; the most likely token is the same one.

        Args:
            logits: of all tokens, float32.
        """
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            return self._with_numpy(numpy, numpy.frombuffer(logits, dtype="float32"))
        values: Any = memoryview(logits).cast("f").tolist()
        if self._how.temperature == 0.0:
            return int(values.index(max(values)))
        return self._drawn(*self._likeliest(values))

    def _with_numpy(self, numpy: Any, logits: Any) -> int:
        if self._how.temperature == 0.0:
            return int(logits.argmax())
        # Of equal ones the first comes first, as below.
        scaled = (logits.astype("float64") - float(logits.max())) / self._how.temperature
        weights = numpy.exp(scaled)
        if not self._how.top_k and self._how.top_p == 1.0:
            sums = numpy.cumsum(weights)
            place = int(numpy.searchsorted(sums, self._random.random() * float(sums[-1]), side="right"))
            return min(place, len(weights) - 1)
        order = numpy.argsort(-scaled, kind="stable")[: self._how.top_k or len(weights)]
        ordered = weights[order]
        if self._how.top_p < 1.0:
            sums = numpy.cumsum(ordered)
            kept = int(numpy.searchsorted(sums, self._how.top_p * float(sums[-1]), side="left")) + 1
            order, ordered = order[:kept], ordered[:kept]
        return self._drawn(ordered.tolist(), order.tolist())

    def _likeliest(self, logits: List[float]) -> Tuple[List[float], Sequence[int]]:
        """The tokens that are drawn from, the likeliest first unless all are, and their weights."""
        top, temperature = max(logits), self._how.temperature
        weights = [math.exp((value - top) / temperature) for value in logits]
        if not self._how.top_k and self._how.top_p == 1.0:
            return weights, range(len(weights))
        count = min(self._how.top_k or _FIRST, len(weights))
        while True:
            order = heapq.nlargest(count, range(len(weights)), key=logits.__getitem__)
            ordered = [weights[token] for token in order]
            wanted = self._how.top_p * math.fsum(ordered if self._how.top_k else weights)
            sums = list(itertools.accumulate(ordered))
            if self._how.top_k or count == len(weights) or sums[-1] >= wanted:
                break
            count = min(8 * count, len(weights))
        kept = len(order) if self._how.top_p == 1.0 else bisect.bisect_left(sums, wanted) + 1
        return ordered[:kept], order[:kept]

    def _drawn(self, weights: List[float], tokens: Sequence[int]) -> int:
        sums = list(itertools.accumulate(weights))
        place = bisect.bisect_right(sums, self._random.random() * sums[-1])
        return int(tokens[min(place, len(tokens) - 1)])
