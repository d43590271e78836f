"""A language model on the virtual machine: the logits behind any tokens, computing as little as possible."""

from __future__ import annotations

import array
from typing import Any, Dict, List, NamedTuple, Sequence, Union

from device_agent.contract.manifest import LONG_PREFILL, PREFILL, VERIFY
from device_agent.contract.text import printable
from device_agent.errors import AgentError
from device_agent.execute import ffi
from device_agent.execute.kept_prompt import read_prompt, write_prompt
from device_agent.execute.model_signature import TensorInfo, functions_of
from device_agent.execute.relayed import RelayedFunction, RelayedMachine
from device_agent.execute.virtual_machine import Entry, VirtualMachine, tensors_of
from device_agent.store.opened_bundle import BundleError

# Why a text ends, beside `Decoder.full`.
END_OF_TEXT = "end of text"
MAX_TOKENS = "max_tokens"
_ROWS_OF_A_STEP = 4
# Longer chunks are those of processors that take no longer for them than others do for so many tokens.
_MOST_COUNTED = 64
Machine = Union[VirtualMachine, RelayedMachine]
Function = Union[VirtualMachine, Entry, RelayedFunction]


class _Chunk(NamedTuple):
    """A function that takes several tokens of a prompt.

    Attributes:
        tokens: of a call.
        least: tokens from which on a call is made for them.
        function: what is called.
    """

    tokens: int
    least: int
    function: Function


class Decoder:
    """Computes logits, and remembers whose keys and values the state holds.

    Args:
        machine: the loaded model, here or elsewhere.
        fields: `decoder` of the checked manifest.
        text: number of the text whose state it has.

    Attributes:
        context: tokens that the state has places for.
        vocabulary: number of tokens that there are.
        end_tokens: those that end a text.
        reused: tokens of the last call that were not computed again.
        verified: tokens of one call of `verify`, the known one included; 0 where the bundle has none.
        worth_a_chunk: tokens from which on a call of the prefill is made for them.

    Raises:
        BundleError: the library has no function for several tokens.
    """

    def __init__(self, machine: Machine, fields: Dict[str, Any], text: int = 0) -> None:
        self.context = int(fields["context"])
        self.vocabulary = int(fields["vocabulary"])
        self.end_tokens = frozenset(int(token) for token in fields["end_tokens"])
        self.reused = 0
        self._chunk = int(fields["chunk"])
        # A chunk computes all its rows, and a step reads all weights for one: an estimate of where both take
        # as long. It is no measurement, so that a new prompt is always computed in the same way.
        self.worth_a_chunk = max(2, min(self._chunk, _MOST_COUNTED) // _ROWS_OF_A_STEP)
        self._rounds = "rounding" in fields
        self._machine, self._text = machine, text
        functions = functions_of(fields)
        self._step: Function = machine
        if text:
            ones = [TensorInfo(name, (1,), "int32") for name in ("tokens", "position")]
            self._step = self._entry("main", ones)
        # The longest first.
        self._chunks: List[_Chunk] = []
        if LONG_PREFILL in functions:
            size = int(fields["long_chunk"])
            # For fewer tokens, short chunks compute fewer rows; for these, they compute as many, and take the
            # weights apart more often.
            least = size - self._chunk + self.worth_a_chunk
            self._add_chunk(LONG_PREFILL, functions[LONG_PREFILL].inputs, size, least)
        self._add_chunk(PREFILL, functions[PREFILL].inputs, self._chunk, self.worth_a_chunk)
        self.verified = int(fields.get("verified", 0))
        if self.verified:
            self._verify = self._entry(VERIFY, functions[VERIFY].inputs)
        # The tokens that the state is right for, from position 0 on.
        self._tokens: List[int] = []

    def _entry(self, name: str, inputs: Sequence[TensorInfo]) -> Function:
        try:
            return self._machine.entry(name, inputs, (self._text,))
        except (RuntimeError, AttributeError, ValueError) as error:
            raise BundleError("its library has no function %s: make the bundle again" % name) from error

    def _add_chunk(self, name: str, inputs: Sequence[TensorInfo], size: int, least: int) -> None:
        self._chunks.append(_Chunk(size, least, self._entry(name, inputs)))

    def check(self, tokens: Sequence[int]) -> None:
        """Refuses tokens that the model cannot take.

        Raises:
            ValueError: there are none, too many, or one that the model does not know.
        """
        if not tokens:
            raise ValueError("the prompt is empty: give at least one token")
        if len(tokens) > self.context:
            raise ValueError(
                "the prompt has %d tokens, the model has a context of %d: shorten it, or deploy the model"
                " with a larger --context" % (len(tokens), self.context)
            )
        for token in tokens:
            if not 0 <= token < self.vocabulary:
                raise ValueError(
                    "token %d is not of the model's vocabulary, 0 to %d" % (token, self.vocabulary - 1)
                )

    @property
    def full(self) -> str:
        """Why a text ends that has a token more than there are places."""
        return "the context of %d tokens is full: a larger --context holds longer texts" % self.context

    def forget(self) -> None:
        """Has to be called where other code has changed the state."""
        self._tokens = []

    def save(self, path: str, content: str) -> int:
        """Writes the state of the last text to a file, and gives the number of its tokens.

        Args:
            path: of the file.
            content: digest of what the bundle computes.

        Raises:
            AgentError: there is no text.
            OSError: the file cannot be written.
        """
        if not self._tokens:
            raise AgentError("bad_request", "there is no prompt to save: generate a text with it first")
        write_prompt(path, content, self._tokens, self._machine.state)
        return len(self._tokens)

    def restore(self, path: str, content: str) -> int:
        """Fills the state out of a file that `save` wrote, and gives the number of its tokens.

        Raises:
            AgentError: no such file, a damaged one, or one of another bundle.
            OSError: it cannot be read.
        """
        tokens = read_prompt(path, content, self.context, self._machine.state, self.forget)
        try:
            self.check(tokens)
        except ValueError as error:
            raise AgentError("bad_request", "%s: %s" % (printable(path), error)) from error
        self._tokens = tokens
        return len(tokens)

    def logits(self, tokens: Sequence[int]) -> bytearray:
        """Logits of the token that follows some tokens, float32.

        Tokens at the beginning that the last call had too are not computed again.

        Args:
            tokens: that have been checked.
        """
        # The last one is always computed, for its logits.
        position = min(self.common(tokens), len(tokens) - 1)
        self.reused = position
        # Before the state changes: an interrupted call leaves what is known to be right.
        del self._tokens[position:]
        result = None
        while position < len(tokens):
            left = len(tokens) - position
            # Logits are those of a step where a chunk rounds activations to bytes.
            given_to_chunks = left - 1 if self._rounds else left
            chunk = next((one for one in self._chunks if given_to_chunks >= one.least), None)
            if chunk is not None:
                end = position + given_to_chunks
                # The last chunk of the context begins at tokens that are known: its rows are computed anyway.
                position = min(position, self.context - chunk.tokens)
                given = list(tokens[position : min(end, position + chunk.tokens)])
                del self._tokens[position:]
                result = self._call_chunk(chunk, given, position)
            else:
                given = [tokens[position]]
                result = called(self._step, [given, [position]])
            self._tokens += given
            position += len(given)
        return bytes_of(result, 4 * self.vocabulary)

    def can_verify(self, tokens: Sequence[int]) -> bool:
        """Whether `verify` takes them: the state is right for all but the last, and has places for a call."""
        fits = self.verified > 0 and len(tokens) - 1 + self.verified <= self.context
        return fits and self.follows(tokens)

    def verify(self, tokens: Sequence[int], draft: Sequence[int]) -> List[memoryview]:
        """Logits of the token behind some tokens, and of those behind each token that may follow them.

        The state is right for the tokens afterwards; `confirm` says which of the draft are right too.

        Args:
            tokens: that `can_verify` takes.
            draft: fewer than `verified`.
        """
        position = len(tokens) - 1
        self.reused = position
        given = [tokens[-1], *draft]
        padding = [0] * (self.verified - len(given))
        result = called(self._verify, [given + padding, [position]])
        self._tokens.append(tokens[-1])
        size = 4 * self.vocabulary
        rows = memoryview(bytes_of(result, self.verified * size))
        return [rows[row * size : (row + 1) * size] for row in range(len(given))]

    def confirm(self, draft: Sequence[int]) -> None:
        """Continues the text with these tokens, the first of the draft that was verified last."""
        self._tokens += draft

    def adopt(self, source: "Decoder", count: int) -> None:
        """Copies the state of another text, which is right for this one's first tokens.

        Args:
            source: the other text's.
            count: of its tokens that are this text's too.
        """
        self.forget()
        self._machine.copy_state(source._text, self._text)
        self._tokens = source._tokens[:count]

    def follows(self, tokens: Sequence[int]) -> bool:
        """Whether the state is right for all tokens but the last: one step takes it."""
        return self._tokens == list(tokens[:-1])

    def stepped(self, token: int) -> None:
        """Says that a call beside this decoder's own has taken the next token."""
        self._tokens.append(token)

    def place_to_spare(self) -> int:
        """A position that a call may write to for nothing: behind the known tokens, where there is one."""
        place = min(len(self._tokens), self.context - 1)
        del self._tokens[place:]
        return place

    def common(self, tokens: Sequence[int]) -> int:
        """How many of the first tokens the state is right for."""
        known = len(self._tokens)
        if known <= len(tokens) and self._tokens == list(tokens[:known]):
            return known
        pairs = enumerate(zip(self._tokens, tokens))
        return next((place for place, (one, other) in pairs if one != other), min(known, len(tokens)))

    def _call_chunk(self, chunk: _Chunk, tokens: List[int], position: int) -> Any:
        padding = [0] * (chunk.tokens - len(tokens))
        return called(chunk.function, [tokens + padding, [position], [len(tokens) - 1]])


def called(function: Function, values: List[List[int]]) -> Any:
    """What a function gives for the numbers of each input; `bytes_of` reads it."""
    if isinstance(function, RelayedFunction):
        return function.call(values)
    for tensor, numbers in zip(function.inputs, values):
        ffi.copy_from_buffer(tensor, array.array("i", numbers).tobytes())
    return function.invoke()


def bytes_of(result: Any, size: int) -> bytearray:
    """The first so many bytes of what a call gave; all of them, where another device computed it.

    Raises:
        AgentError: another device gave another number of them.
    """
    if not isinstance(result, bytearray):
        return ffi.to_bytes(tensors_of(result)[0], size)
    if len(result) != size:
        raise AgentError("engine", "the device gave %d bytes of logits, not %d" % (len(result), size))
    return result
