"""Decoding: the model writes the decisions of many programs at once; all of them are legal.

At each step, only tokens that continue an allowed value of the decision (see `completions`) have a
probability above zero: every drawn program parses and is legal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from host.schedules.design import DesignSpace
from host.tlm.language import numbers
from host.tlm.language.description import describe_board, describe_task
from host.tlm.language.sentence import encode_prompt
from host.tlm.language.vocabulary import END, PAD, Vocabulary, decision_token
from host.tlm.model.completions import Completions
from host.tlm.model.gpt2 import Cache, LanguageModel

# Tokens of the first vocabulary. The noise of those that were appended is drawn apart, so that an appended
# token changes no program that is written without it.
_FIRST_TOKENS = 769
# Temperature of the last program of a round over that of the first draw.
BOLDEST = 2.0


@dataclass(frozen=True)
class GeneratedProgram:
    """A generated program.

    Attributes:
        values: of all decisions, in the order of the space.
        log_probability: of the program under the masked model, natural logarithm.
    """

    values: tuple[int, ...]
    log_probability: float


class _Writer:
    """The state of one program during generation: which tokens may come next.

    Names and values alternate in the sentence; `_spelled` has the tokens of the current value so far.
    """

    def __init__(self, completions: Completions, names: Sequence[str]) -> None:
        self._completions = completions
        self._names = names
        self.values: tuple[int, ...] = ()
        self._spelled: tuple[str, ...] | None = None
        self._open: tuple[tuple[int, tuple[str, ...]], ...] = ()
        self.log_probability = 0.0
        self.finished = False

    def allowed(self) -> tuple[str, ...]:
        """The tokens that may come next."""
        if self._spelled is None:
            return (self._following(),)
        length = len(self._spelled)
        return tuple(
            dict.fromkeys(
                spelling[length] if len(spelling) > length else self._following(1)
                for _, spelling in self._open
            )
        )

    def take(self, token: str) -> None:
        """Append a token to the program; a token behind a whole value begins the next decision."""
        if self._spelled is None or token in (self._following(1), END):
            if self._spelled is not None:
                done = next(value for value, spelling in self._open if spelling == self._spelled)
                self.values = (*self.values, done)
            self.finished = token == END
            if not self.finished:
                allowed = self._completions.allowed(self.values)
                self._open = tuple((value, numbers.spell(value)) for value in allowed)
                self._spelled = ()
            return
        length = len(self._spelled)
        self._spelled = (*self._spelled, token)
        self._open = tuple(
            (value, spelling) for value, spelling in self._open if spelling[length : length + 1] == (token,)
        )

    def _following(self, ahead: int = 0) -> str:
        """The name of the next decision, or the end."""
        position = len(self.values) + ahead
        return decision_token(self._names[position]) if position < len(self._names) else END


def generate(
    model: LanguageModel,
    vocabulary: Vocabulary,
    space: DesignSpace,
    count: int,
    seed: int,
    temperature: float = 1.0,
) -> list[GeneratedProgram]:
    """Generate programs for a space: the first takes the likeliest token at each step, the others are drawn.

    Args:
        model: the language model.
        vocabulary: its vocabulary.
        space: the space of the task on the board.
        count: number of programs; the same program may occur more than once.
        seed: of the draws.
        temperature: of the first draw; it rises evenly to twice this value at the last one, for variety.

    Raises:
        ScheduleError: the space has no decisions or no legal program.
        TlmError: the language has no token for a property of the task or the board.
    """
    completions = Completions(space)
    names = [decision.name for decision in space.decisions]
    prompt = encode_prompt(describe_board(space.hardware, space.threads), describe_task(space))
    writers = [_Writer(completions, names) for _ in range(count)]
    padding = vocabulary.number(PAD)
    temperatures = temperature * torch.linspace(1.0, BOLDEST, count).unsqueeze(1)
    generators = (torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed))
    cache = Cache()
    fed = torch.tensor([vocabulary.encode(prompt)])
    with torch.inference_mode(), _one_thread():
        logits = model(fed, cache)[:, -1]
        cache.repeat(count)
        logits = logits.expand(count, -1)
        while True:
            taken = _draw(writers, logits, vocabulary, generators, temperatures)
            if all(writer.finished for writer in writers):
                break
            fed = torch.tensor([[padding if token < 0 else token] for token in taken])
            logits = model(fed, cache)[:, -1]
    return [GeneratedProgram(writer.values, writer.log_probability) for writer in writers]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread: sums have one order on every machine, and no core is taken from a measurement."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _draw(
    writers: Sequence[_Writer],
    logits: torch.Tensor,
    vocabulary: Vocabulary,
    generators: tuple[torch.Generator, torch.Generator],
    temperatures: torch.Tensor,
) -> list[int]:
    """The next token of every program, -1 for finished ones; the first program takes the likeliest."""
    mask = torch.full(logits.shape, -torch.inf)
    options = []
    for row, writer in enumerate(writers):
        tokens = [] if writer.finished else vocabulary.encode(writer.allowed())
        options.append(tokens)
        mask[row, tokens or [0]] = 0.0
    scores = torch.log_softmax(logits + mask, dim=-1)
    drawn = _multinomial(torch.softmax((logits + mask) / temperatures, dim=-1), generators)
    taken = []
    for row, writer in enumerate(writers):
        if not options[row]:
            taken.append(-1)
            continue
        token = int(scores[row].argmax()) if row == 0 else int(drawn[row])
        writer.log_probability += float(scores[row, token])
        writer.take(vocabulary.tokens[token])
        taken.append(token)
    return taken


def _multinomial(probabilities: torch.Tensor, generators: Sequence[torch.Generator]) -> torch.Tensor:
    """(rows,) one column of each row by its probability: the largest p / e, e exponential noise.

    Args:
        probabilities: (rows, tokens).
        generators: of the noise of the first vocabulary's tokens, and of the noise of those appended to it.
    """
    parts = probabilities.split([_FIRST_TOKENS, probabilities.shape[1] - _FIRST_TOKENS], dim=1)
    noise = [
        torch.empty(part.shape).exponential_(generator=generator)
        for part, generator in zip(parts, generators, strict=True)
    ]
    return (probabilities / torch.cat(noise, dim=1)).argmax(dim=1)
