"""Text of a language model, token by token."""

from __future__ import annotations

import time
from typing import (
    Any,
    ContextManager,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from device_agent.errors import AgentError
from device_agent.execute.decoder import END_OF_TEXT, MAX_TOKENS, Machine
from device_agent.execute.several.decoders import Decoders
from device_agent.execute.several.texts import Prompt, Texts
from device_agent.execute.text.chat import Chat
from device_agent.execute.text.sampling import Sampler
from device_agent.execute.text.speculation import Lookup, Pace
from device_agent.execute.text.stops import STOP_STRING, StoppedPieces
from device_agent.execute.text.tokenizer import TextPieces, Tokenizer


class Timing(NamedTuple):
    """What the last text took; of a text that is not complete, so far.

    Attributes:
        prompt_tokens: of the prompt.
        reused_tokens: of these, whose state was there from the text before.
        prefill_s: seconds until the first token was known.
        tokens: that were generated.
        decode_s: seconds of computing those behind the first.
        speculated_tokens: of the tokens, those that were drafted and turned out right: no step computed them.
    """

    prompt_tokens: int
    reused_tokens: int
    prefill_s: float
    tokens: int = 0
    decode_s: float = 0.0
    speculated_tokens: int = 0

    @property
    def tokens_per_s(self) -> Optional[float]:
        """Tokens per second behind the first; None where there are none."""
        return (self.tokens - 1) / self.decode_s if self.tokens > 1 and self.decode_s > 0.0 else None


class Generation:
    """Generates texts with one loaded model.

    Args:
        machine: the model.
        fields: `decoder` of the checked manifest.
        folder: of the bundle.
        lock: that a call of the model holds.

    Attributes:
        stopped: why the last text ended; "" while it has not.
        timing: what the last text took; None before the first.
        decoder: computes the logits of single texts.

    Raises:
        BundleError: the library is not that of a language model.
    """

    def __init__(
        self, machine: Machine, fields: Dict[str, Any], folder: str, lock: ContextManager[Any]
    ) -> None:
        self._decoders = Decoders(machine, fields)
        self.decoder = self._decoders.each[0]
        self.stopped = ""
        self.timing: Optional[Timing] = None
        self._folder = folder
        self._lock = lock
        self._tokenizer: Optional[Tokenizer] = None
        self._chat: Optional[Chat] = None
        # Kept from text to text: what the device is like stays.
        self._pace = Pace(self.decoder.verified)

    def generate(
        self,
        prompt: Union[str, Sequence[int]],
        max_tokens: int,
        sampler: Sampler,
        speculate: Optional[bool] = None,
        stops: Sequence[str] = (),
    ) -> Iterator[Union[str, int]]:
        """Begins a text; what follows the prompt, in pieces, is computed when they are taken.

        Args:
            prompt: text, or numbers of tokens.
            max_tokens: most tokens to generate.
            sampler: chooses them.
            speculate: whether tokens are drafted and verified several at a time; None where that is faster,
                by the times of both.
            stops: strings that end the text; see `checked_stops`.

        Returns:
            Pieces of text, or numbers of tokens where the prompt is numbers. Without the token that ends it.

        Raises:
            ValueError: the prompt does not fit the model.
            AgentError: the prompt is text, and there is no tokenizer.
        """
        given = self._prompt(prompt, max_tokens, sampler, stops)
        found = self._tokens(given.tokens, max_tokens, sampler, speculate)
        return found if given.pieces is None else self._texts(given.pieces, found)

    @property
    def chat(self) -> Chat:
        """The bundle's chat templates.

        Raises:
            AgentError: their file is damaged.
        """
        if self._chat is None:
            self._chat = Chat(self._folder)
        return self._chat

    def answer(
        self,
        messages: Sequence[Mapping[str, Any]],
        template: Optional[str],
        variables: Optional[Mapping[str, Any]],
        max_tokens: int,
        sampler: Sampler,
        speculate: Optional[bool] = None,
        stops: Sequence[str] = (),
    ) -> Iterator[str]:
        """Begins the next turn of a conversation, in pieces of text.

        Args:
            messages: the turns before; see `Chat.render`.
            template: name of a chat template; None for the usual one.
            variables: that the template may name.
            max_tokens: see `generate`, as what follows.
            sampler: see there.
            speculate: see there.
            stops: see there.

        Raises:
            ValueError: the messages are none, or do not fit the context.
            AgentError: there is no chat template or tokenizer, or the template fails.
        """
        tokens = self._known_tokenizer().encode(self.chat.render(messages, template, variables), around=False)
        if len(tokens) > self.decoder.context:
            raise ValueError(
                "the conversation has %d tokens, the model has a context of %d: begin another one, or deploy "
                "the model with a larger --context" % (len(tokens), self.decoder.context)
            )
        given = self._checked(tokens, max_tokens, sampler, stops)
        assert given.pieces is not None
        return self._texts(given.pieces, self._tokens(given.tokens, max_tokens, sampler, speculate))

    def generate_many(
        self,
        prompts: Sequence[Union[str, Sequence[int]]],
        max_tokens: int,
        samplers: Sequence[Sampler],
        stops: Sequence[str] = (),
    ) -> Texts:
        """Begins several texts, which are continued together.

        Args:
            prompts: of each text; see `generate`.
            max_tokens: most tokens of each.
            samplers: of each text.
            stops: strings that end each text.

        Raises:
            ValueError: there are no prompts, or one does not fit the model.
            AgentError: a prompt is text, and there is no tokenizer.
        """
        if not prompts:
            raise ValueError("there are no prompts: give at least one")
        given = [self._prompt(one, max_tokens, sampler, stops) for one, sampler in zip(prompts, samplers)]
        return Texts(self._decoders, given, max_tokens, self._lock)

    def _prompt(
        self, prompt: Union[str, Sequence[int]], max_tokens: int, sampler: Sampler, stops: Sequence[str]
    ) -> Prompt:
        """A prompt that the model can take."""
        if isinstance(prompt, str):
            return self._checked(self._known_tokenizer().encode(prompt), max_tokens, sampler, stops)
        if stops:
            raise ValueError("stop strings end texts: give the prompt as text, or leave them out")
        tokens = [int(token) for token in prompt]
        return self._checked(tokens, max_tokens, sampler, None)

    def _checked(
        self, tokens: List[int], max_tokens: int, sampler: Sampler, stops: Optional[Sequence[str]]
    ) -> Prompt:
        """A prompt whose continuation is text, up to a stop string; numbers where there are None."""
        if max_tokens < 1:
            raise ValueError("max_tokens is %d, not 1 or more" % max_tokens)
        self.decoder.check(tokens)
        if stops is None:
            return Prompt(tokens, sampler, None)
        pieces = TextPieces(self._known_tokenizer(), tokens)
        return Prompt(tokens, sampler, StoppedPieces(pieces, stops))

    def _known_tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            self._tokenizer = Tokenizer(self._folder)
        return self._tokenizer

    def _texts(self, pieces: StoppedPieces, tokens: Iterator[int]) -> Iterator[str]:
        for token in tokens:
            piece = pieces.add(token)
            if pieces.stopped:
                # Said before the last piece is taken: who takes no more knows that it was the last.
                self.stopped = STOP_STRING
            if piece:
                yield piece
            if pieces.stopped:
                return
        rest = pieces.rest()
        if pieces.stopped:
            self.stopped = STOP_STRING
        if rest:
            yield rest

    def _tokens(
        self, prompt: List[int], max_tokens: int, sampler: Sampler, speculate: Optional[bool]
    ) -> Iterator[int]:
        # All tokens are given to the decoder each time, which knows whose state it has: the model may have
        # been used for something else since the last one was taken.
        tokens, self.stopped, lookup = list(prompt), "", Lookup()
        chosen, seconds = self._next(tokens, [], sampler)
        self.timing = timing = Timing(len(prompt), self.decoder.reused, seconds)
        while True:
            for token in chosen:
                if token in self.decoder.end_tokens:
                    self.stopped = END_OF_TEXT
                    return
                tokens.append(token)
                self.timing = timing = timing._replace(tokens=timing.tokens + 1)
                yield token
                if timing.tokens == max_tokens:
                    self.stopped = MAX_TOKENS
                    return
                if len(tokens) > self.decoder.context:
                    self.stopped = self.decoder.full
                    return
            draft = self._draft(lookup, tokens, max_tokens - timing.tokens - 1, speculate)
            chosen, seconds = self._next(tokens, draft, sampler)
            self._observe(len(tokens), len(draft), len(chosen), seconds)
            timing = timing._replace(
                decode_s=timing.decode_s + seconds,
                speculated_tokens=timing.speculated_tokens + len(chosen) - 1,
            )

    def _draft(self, lookup: Lookup, tokens: List[int], most: int, speculate: Optional[bool]) -> List[int]:
        """Tokens that may follow, to be verified; none where a step is to be made."""
        count = min(most, self.decoder.verified - 1)
        if count < 1 or speculate is False or not self.decoder.can_verify(tokens):
            return []
        draft = lookup.draft(tokens, count)
        return draft if speculate or (draft and self._pace.worth()) else []

    def _next(self, tokens: List[int], draft: List[int], sampler: Sampler) -> Tuple[List[int], float]:
        """The tokens that follow, one or more, and the seconds that they took."""
        start_s = time.monotonic()
        with self._lock:
            # Since the draft was made, somebody else may have changed the state.
            if draft and self.decoder.can_verify(tokens):
                chosen = self._verified(tokens, draft, sampler)
            else:
                chosen = [sampler.choose(self.decoder.logits(tokens))]
        return chosen, time.monotonic() - start_s

    def _verified(self, tokens: List[int], draft: List[int], sampler: Sampler) -> List[int]:
        """The tokens that steps would choose, up to the first that is not the drafted one."""
        chosen: List[int] = []
        for place, logits in enumerate(self.decoder.verify(tokens, draft)):
            chosen.append(sampler.choose(logits))
            if draft[place : place + 1] != chosen[-1:] or chosen[-1] in self.decoder.end_tokens:
                break
        self.decoder.confirm(draft[: len(chosen) - 1])
        return chosen

    def _observe(self, tokens: int, drafted: int, chosen: int, seconds: float) -> None:
        # A call after which more than one token had to be computed says nothing.
        if tokens - self.decoder.reused != 1:
            return
        if drafted:
            self._pace.verification(seconds, chosen)
        else:
            self._pace.step(seconds)


def no_language_model(folder: str) -> AgentError:
    """The error of a bundle that is to generate text and is no language model."""
    return AgentError(
        "bad_request", "%s is not the bundle of a language model: run it with its inputs" % folder
    )
