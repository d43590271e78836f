"""Several texts of a language model, continued together, in pieces."""

from __future__ import annotations

import time
from collections import deque
from typing import (
    Any,
    ContextManager,
    Deque,
    Dict,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from device_agent.execute.decoder import END_OF_TEXT, MAX_TOKENS, Decoder
from device_agent.execute.several.decoders import Decoders
from device_agent.execute.text.sampling import Sampler
from device_agent.execute.text.stops import STOP_STRING, StoppedPieces


class Piece(NamedTuple):
    """What was added to a text.

    Attributes:
        text: number of its prompt, from 0 on.
        piece: whole characters, or the number of a token where the prompt is numbers.
    """

    text: int
    piece: Union[str, int]


class TextsTiming(NamedTuple):
    """What some texts took together; while they are not complete, so far.

    Attributes:
        texts: that were begun.
        prompt_tokens: of their prompts.
        reused_tokens: of these, whose state was there, or that of another text was copied.
        prefill_s: seconds of computing the first token of each text.
        tokens: that were generated.
        decode_s: seconds of computing those behind the first ones.
    """

    texts: int = 0
    prompt_tokens: int = 0
    reused_tokens: int = 0
    prefill_s: float = 0.0
    tokens: int = 0
    decode_s: float = 0.0

    @property
    def tokens_per_s(self) -> Optional[float]:
        """Tokens per second of all texts, behind the first one of each; None where there are none."""
        behind = self.tokens - self.texts
        return behind / self.decode_s if behind > 0 and self.decode_s > 0.0 else None


class Prompt(NamedTuple):
    """A text to continue.

    Attributes:
        tokens: checked by the decoder.
        sampler: chooses the tokens that follow.
        pieces: makes text of them; None where numbers are wanted.
    """

    tokens: List[int]
    sampler: Sampler
    pieces: Optional[StoppedPieces]


class Texts:
    """The pieces of several texts, as they are computed; an iterator.

    Args:
        decoders: of the model.
        prompts: one or more. As many at once as there are places; the others begin where a text has ended.
        max_tokens: most tokens of each text.
        lock: that a call of the model holds.

    Attributes:
        stopped: why each text ended; "" while it has not.
        timing: what the texts took so far.
    """

    def __init__(
        self, decoders: Decoders, prompts: Sequence[Prompt], max_tokens: int, lock: ContextManager[Any]
    ) -> None:
        self.stopped = [""] * len(prompts)
        self.timing = TextsTiming()
        self._decoders, self._lock, self._most = decoders, lock, max_tokens
        self._prompts = prompts
        self._tokens = [list(prompt.tokens) for prompt in prompts]
        self._pieces = self._all()

    def __iter__(self) -> Iterator[Piece]:
        return self

    def __next__(self) -> Piece:
        return next(self._pieces)

    def _all(self) -> Iterator[Piece]:
        waiting: Deque[int] = deque(range(len(self._prompts)))
        # Numbers of the texts that are being continued, by their place.
        running: Dict[int, int] = {}
        while waiting or running:
            while waiting and len(running) < len(self._decoders.each):
                text = waiting.popleft()
                place, token = self._begin(text, running)
                yield from self._taken(text, token)
                if not self.stopped[text]:
                    running[place] = text
            if running:
                chosen = self._step(running)
                for place, token in chosen.items():
                    yield from self._taken(running[place], token)
                running = {place: text for place, text in running.items() if not self.stopped[text]}

    def _begin(self, text: int, running: Dict[int, int]) -> Tuple[int, int]:
        """The place of a new text, and the token behind its prompt."""
        tokens, start_s = self._tokens[text], time.monotonic()
        with self._lock:
            free = [place for place in range(len(self._decoders.each)) if place not in running]
            place = self._decoders.place_for(tokens, free)
            logits = self._decoders.begin(place, tokens)
            reused = self._decoders.each[place].reused
        token = self._prompts[text].sampler.choose(logits)
        known = self.timing
        self.timing = known._replace(
            texts=known.texts + 1,
            prompt_tokens=known.prompt_tokens + len(tokens),
            reused_tokens=known.reused_tokens + reused,
            prefill_s=known.prefill_s + time.monotonic() - start_s,
        )
        return place, token

    def _step(self, running: Dict[int, int]) -> Dict[int, int]:
        """The next token of every text, by its place."""
        start_s = time.monotonic()
        with self._lock:
            logits = self._decoders.step({place: self._tokens[text] for place, text in running.items()})
        chosen = {
            place: self._prompts[text].sampler.choose(logits[place])
            for place, text in sorted(running.items())
        }
        self.timing = self.timing._replace(decode_s=self.timing.decode_s + time.monotonic() - start_s)
        return chosen

    def _taken(self, text: int, token: int) -> Iterator[Piece]:
        """The pieces that a token adds to its text, which may end by it."""
        decoder, pieces = self._decoders.each[0], self._prompts[text].pieces
        ended = self._reason(decoder, text, token)
        if ended != END_OF_TEXT:
            self.timing = self.timing._replace(tokens=self.timing.tokens + 1)
            piece: Union[str, int] = token if pieces is None else pieces.add(token)
            if pieces is not None and pieces.stopped:
                ended = STOP_STRING
            # A number is a piece even where it is 0.
            if pieces is None or piece:
                yield Piece(text, piece)
        rest = pieces.rest() if ended and pieces is not None else ""
        if pieces is not None and pieces.stopped:
            ended = STOP_STRING
        # Said before the last piece is taken: who takes no more knows that it was the last.
        self.stopped[text] = ended
        if rest:
            yield Piece(text, rest)

    def _reason(self, decoder: Decoder, text: int, token: int) -> str:
        """Why a text ends with its new token; "" where it goes on."""
        if token in decoder.end_tokens:
            return END_OF_TEXT
        tokens = self._tokens[text]
        tokens.append(token)
        if len(tokens) - len(self._prompts[text].tokens) == self._most:
            return MAX_TOKENS
        return decoder.full if len(tokens) > decoder.context else ""
