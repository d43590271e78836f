"""Decoding: the model writes the decisions of many programs at once; all of them are legal and different.

At each step, only tokens that continue an allowed value of the decision (see `completions`) have a
probability above zero: every drawn program parses and is legal.

The programs are drawn without replacement, by stochastic beam search (Kool, van Hoof and Welling,
"Stochastic Beams and Where to Find Them", ICML 2019). The key of an unfinished program x is the largest of
log p(y) + g(y) over the programs y that begin with x, where g is Gumbel noise. The k whole programs with the
largest keys are k draws without replacement. All programs are written at once, token by token, and the k with
the largest keys are kept. With replacement, a model that is sure draws few different programs, and a ranking
has little to choose from.
"""

from __future__ import annotations

import copy
import heapq
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from host.schedules.design import DesignSpace
from host.tlm.language import numbers
from host.tlm.language.description import describe_board, describe_task
from host.tlm.language.sentence import encode_prompt
from host.tlm.language.vocabulary import END, Vocabulary, decision_token
from host.tlm.model.completions import Completions
from host.tlm.model.gpt2 import Cache, LanguageModel


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

    Names and values alternate in the sentence; `_spelled` has the tokens of the current value so far. A
    program near another one has its decisions, except the first that differs and those that do not fit then.
    """

    def __init__(
        self, completions: Completions, names: Sequence[str], near: tuple[int, ...] | None = None
    ) -> None:
        self._completions = completions
        self._names = names
        self._near = near
        self.values: tuple[int, ...] = ()
        self._spelled: tuple[str, ...] | None = None
        self._open: tuple[tuple[int, tuple[str, ...]], ...] = ()
        # The value that the current decision has to have, if it has to.
        self._kept: int | None = None
        self.finished = False

    def allowed(self) -> tuple[str, ...]:
        """The tokens that may come next in a legal program."""
        return self._continuing(self._open)

    def wanted(self) -> tuple[str, ...]:
        """Those of them that may be drawn."""
        if self._kept is None:
            return self.allowed()
        return self._continuing([one for one in self._open if one[0] == self._kept])

    def _continuing(self, values: Sequence[tuple[int, tuple[str, ...]]]) -> tuple[str, ...]:
        """The tokens that continue the current value to one of these."""
        if self._spelled is None:
            return (self._following(),)
        length = len(self._spelled)
        return tuple(
            dict.fromkeys(
                spelling[length] if len(spelling) > length else self._following(1) for _, spelling in values
            )
        )

    def followed_by(self, token: str) -> _Writer:
        """The program with one more token."""
        found = copy.copy(self)
        found._take(token)
        return found

    def _take(self, token: str) -> None:
        """Append a token to the program; a token behind a whole value begins the next decision."""
        if self._spelled is None or token in (self._following(1), END):
            if self._spelled is not None:
                done = next(value for value, spelling in self._open if spelling == self._spelled)
                self.values = (*self.values, done)
            self.finished = token == END
            if not self.finished:
                self._begin()
            return
        length = len(self._spelled)
        self._spelled = (*self._spelled, token)
        self._open = tuple(
            (value, spelling) for value, spelling in self._open if spelling[length : length + 1] == (token,)
        )

    def _begin(self) -> None:
        """Begin the value of the next decision."""
        allowed = self._completions.allowed(self.values)
        self._open = tuple((value, numbers.spell(value)) for value in allowed)
        self._spelled = ()
        place = len(self.values)
        if self._near is not None and self.values != self._near[:place]:
            self._kept = self._near[place] if self._near[place] in allowed else None

    def _following(self, ahead: int = 0) -> str:
        """The name of the next decision, or the end."""
        position = len(self.values) + ahead
        return decision_token(self._names[position]) if position < len(self._names) else END


@dataclass(frozen=True, eq=False)
class _Beam:
    """A program that is being written.

    Attributes:
        writer: its state.
        key: by which it is kept, see above; infinite for the one that takes the likeliest tokens.
        drawn_by: logarithm of the probability by which it is drawn.
        log_probability: the same under the model, whatever the temperature.
    """

    writer: _Writer
    key: float = math.inf
    drawn_by: float = 0.0
    log_probability: float = 0.0


@dataclass(frozen=True, eq=False)
class _Step:
    """One more token for a program.

    Attributes:
        key, drawn_by, log_probability: of the program with the token.
        row: of the program before it, among the unfinished ones.
        token: its number.
    """

    key: float
    drawn_by: float
    log_probability: float
    row: int
    token: int


def generate(
    model: LanguageModel,
    vocabulary: Vocabulary,
    space: DesignSpace,
    count: int,
    seed: int,
    temperature: float = 1.0,
) -> list[GeneratedProgram]:
    """Generate different programs for a space, see `Decoder`."""
    return Decoder(model, vocabulary, space).draw(count, seed, temperature)


class Decoder:
    """Writes programs of one space; the description of its task is read once.

    Args:
        model: the language model.
        vocabulary: its vocabulary.
        space: the space of the task on the board.

    Raises:
        ScheduleError: the space has no decisions or no legal program.
        TlmError: the language has no token for a property of the task or the board.
    """

    def __init__(self, model: LanguageModel, vocabulary: Vocabulary, space: DesignSpace) -> None:
        self._model, self._vocabulary = model, vocabulary
        self._names = [decision.name for decision in space.decisions]
        self._completions = Completions(space)
        prompt = encode_prompt(describe_board(space.hardware, space.threads), describe_task(space))
        self._prompt = Cache()
        with torch.inference_mode(), _one_thread():
            self._logits = model(torch.tensor([vocabulary.encode(prompt)]), self._prompt)[:, -1]

    def draw(
        self, count: int, seed: int, temperature: float = 1.0, near: tuple[int, ...] | None = None
    ) -> list[GeneratedProgram]:
        """Different programs: the first takes the likeliest token at each step, the others are drawn.

        Args:
            count: number of programs; there are fewer only where the space has fewer.
            seed: of the draws.
            temperature: of the draws, of each token.
            near: values of all decisions of a program. Drawn are this one and programs with another value for
                one of its decisions; later decisions that do not fit then are drawn too.
        """
        generator = torch.Generator().manual_seed(seed)
        beams = [_Beam(_Writer(self._completions, self._names, near))]
        rows, logits, cache = beams, self._logits, self._prompt.copy()
        with torch.inference_mode(), _one_thread():
            while rows:
                steps = _steps(rows, logits, self._vocabulary, generator, temperature)
                whole = [beam for beam in beams if beam.writer.finished]
                choices: list[_Beam | _Step] = [*whole, *steps]
                kept = heapq.nlargest(count, choices, key=lambda one: one.key)
                beams = [self._followed(rows, one) if isinstance(one, _Step) else one for one in kept]
                going = [
                    (step, beam)
                    for step, beam in zip(kept, beams, strict=True)
                    if isinstance(step, _Step) and not beam.writer.finished
                ]
                rows = [beam for _, beam in going]
                if rows:
                    cache.select([step.row for step, _ in going])
                    logits = self._model(torch.tensor([[step.token] for step, _ in going]), cache)[:, -1]
        return [GeneratedProgram(beam.writer.values, beam.log_probability) for beam in beams]

    def allowed(self, decided: tuple[int, ...]) -> tuple[int, ...]:
        """Values of the next decision that continue a legal program, see `Completions.allowed`."""
        return self._completions.allowed(decided)

    def _followed(self, rows: Sequence[_Beam], step: _Step) -> _Beam:
        writer = rows[step.row].writer.followed_by(self._vocabulary.tokens[step.token])
        return _Beam(writer, step.key, step.drawn_by, step.log_probability)


def _steps(
    rows: Sequence[_Beam],
    logits: torch.Tensor,
    vocabulary: Vocabulary,
    generator: torch.Generator,
    temperature: float,
) -> list[_Step]:
    """All tokens that may be drawn next for the unfinished programs; the logits are (rows, tokens)."""
    options = [vocabulary.encode(beam.writer.allowed()) for beam in rows]
    wanted = [set(vocabulary.encode(beam.writer.wanted())) for beam in rows]
    most = max(map(len, options))
    places = torch.tensor([own + [0] * (most - len(own)) for own in options])
    absent = torch.tensor([[place >= len(own) for place in range(most)] for own in options])
    barred = torch.tensor(
        [
            [place >= len(own) or own[place] not in drawable for place in range(most)]
            for own, drawable in zip(options, wanted, strict=True)
        ]
    )
    known = logits.gather(1, places)
    likely = torch.log_softmax(known.masked_fill(absent, -torch.inf), dim=1).tolist()
    drawn_by = torch.log_softmax(known.masked_fill(barred, -torch.inf) / temperature, dim=1).tolist()
    # What is drawn depends on the tokens that may follow, and not on the size of the vocabulary.
    noise = (-torch.empty(places.shape).exponential_(generator=generator).log()).tolist()
    found = []
    for row, (beam, own, drawable) in enumerate(zip(rows, options, wanted, strict=True)):
        taken = [place for place, token in enumerate(own) if token in drawable]
        totals = [beam.drawn_by + drawn_by[row][place] for place in taken]
        perturbed = [total + noise[row][place] for total, place in zip(totals, taken, strict=True)]
        keys = _keys(beam.key, [likely[row][place] for place in taken], perturbed)
        found += [
            _Step(key, total, beam.log_probability + likely[row][place], row, own[place])
            for key, total, place in zip(keys, totals, taken, strict=True)
        ]
    return found


def _keys(key: float, likely: Sequence[float], perturbed: Sequence[float]) -> list[float]:
    """The keys of a program's continuations: noisy log-probabilities, given that the largest is its own key.

    Args:
        key: of the program; infinite if it has the likeliest tokens, of which the likeliest goes on so.
        likely: logarithms of the probabilities of the tokens.
        perturbed: of each continuation, its logarithm of the probability with its noise.
    """
    if math.isinf(key):
        best = likely.index(max(likely))
        return [key if place == best else one for place, one in enumerate(perturbed)]
    largest = max(perturbed)
    found = []
    for one in perturbed:
        if one == largest:
            found.append(key)
            continue
        # Appendix B.3 of the paper: -log(exp(-key) - exp(-largest) + exp(-one)) without overflow.
        shift = key - one + math.log(-math.expm1(one - largest))
        found.append(key - max(0.0, shift) - math.log1p(math.exp(-abs(shift))))
    return found


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread: sums have one order on every machine, and no core is taken from a measurement."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
