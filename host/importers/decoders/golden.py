"""Golden cases of a decoder with the logits that transformers gives.

Three prompts go through main, a token at a time. A longer one goes through the function for prompts, then the
one that verifies drafts, and ends in steps, as a text is generated. Where there are places for several texts,
the function for these begins the first prompts at different positions.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from device_agent.contract.manifest import PREFILL, TOGETHER, VERIFY
from host.errors import EngineError
from host.importers.decoders.constants import Constants
from host.importers.decoders.description import DecoderDescription, DecoderWeights
from host.importers.decoders.reference import Answers, Questions, moved, reference_answers
from host.model import HALF_SPREADS, GoldenCase
from host.model.text_quality import FILE, FLOATS, TextReference, divergence

# Tokens of the prompts, where the context has places for so many. The first fills more than one block of the
# keys.
_LENGTHS = (24, 8, 8)
# Steps behind what the other functions have computed, and calls of the one for several texts.
_STEPS, _TOGETHER = 2, 4
# Beside quantised weights, keys and values are kept in half precision: logits of 12 random layers move by
# 5e-4 of the largest. The verification allows twice the spread.
QUANTISED_SPREAD = 5e-3
# How far the logits behind a prompt with rounded activations may be off, as part of the largest, so that the
# prefill of a model rounds them to bytes. With what else differs, they stay within 1e-2.
_MOST_ROUNDED = 8e-3
# How far half precision of keys and values may move logits, of what is allowed for all that is rounded.
_MOST_HALVED = 4e-3
# Of a text of the user's: tokens that are continued, and tokens that continue them.
_PROMPT, _CONTINUED = 16, 64
# Matrices that make queries, keys and values where they are not one.
_QUERY_KEY_VALUE = 3


@dataclass(frozen=True, eq=False)
class Golden:
    """What transformers makes of a model.

    Attributes:
        cases: of three prompts, in the order in which they run.
        text: what is known of a text of the user's; None without one.
        rounded: how far logits move, as part of the largest, where the products of a prompt round what they
            multiply; infinite where no weight is quantised.
        attended: the same where attention rounds what it multiplies to bfloat16 too; infinite where that was
            not asked for.
        scores: whether the products that make queries and keys are among those.
        halved: how far logits move where keys and values are kept in half precision; 0 where they are not.
    """

    cases: tuple[GoldenCase, ...]
    text: TextReference | None
    rounded: float
    attended: float = math.inf
    scores: bool = False
    halved: float = 0.0

    @property
    def keeps_floats(self) -> bool:
        """Whether keys and values are kept in float32, beside quantised weights too."""
        return self.halved > _MOST_HALVED

    @property
    def rounds(self) -> bool:
        """Whether the prefill may round activations to bytes."""
        return self.rounded <= _MOST_ROUNDED

    @property
    def rounds_scores(self) -> bool:
        """Whether it may round those of the products that make queries and keys."""
        return self.rounds and self.scores

    @property
    def attends_rounded(self) -> bool:
        """Whether its attention may round to bfloat16."""
        return self.rounds and not self.keeps_floats and self.attended <= _MOST_ROUNDED


@dataclass(frozen=True)
class Functions:
    """The functions that are to be verified.

    Attributes:
        context: positions that there are.
        chunk: tokens of a call of `prefill`.
        verified: tokens of a call of `verify`; 0 where there is none.
        sequences: texts of a call of `together`; 1 where there is none.
    """

    context: int
    chunk: int
    verified: int = 0
    sequences: int = 1

    @property
    def chunks(self) -> tuple[int, ...]:
        """Tokens of the calls of `prefill`: a whole chunk and a part of one, where both have places."""
        if 2 * self.chunk <= self.context:
            return self.chunk, -(-3 * self.chunk // 8)
        return (max(1, min(self.chunk, self.context - self.verified - 2 * _STEPS)),)

    @property
    def tokens(self) -> int:
        """Of the prompt that goes through `prefill`, `verify` and steps."""
        return min(self.context, sum(self.chunks) + self.verified + 2 * _STEPS)


@dataclass(frozen=True, eq=False)
class Known:
    """A text (n) int32, and the logits (n, V) behind each of its tokens."""

    tokens: np.ndarray
    logits: np.ndarray

    def behind(self, place: int) -> np.ndarray:
        """The logits (1, V) behind a token."""
        return np.ascontiguousarray(self.logits[place : place + 1])


def make_golden(
    folder: Path,
    description: DecoderDescription,
    weights: DecoderWeights,
    constants: Constants,
    functions: Functions,
    seed: int,
    text: np.ndarray | None = None,
    *,
    attended: bool = False,
    tiles: bool = False,
) -> Golden:
    """Cases in the order in which they run: the state makes each depend on those before it.

    Args:
        folder: of the model.
        description: its sizes.
        weights: where its weights lie.
        constants: its weights, quantised or not.
        functions: that the library will have.
        seed: of the prompts.
        text: (n) int32 tokens of a text of the user's, two or more; None without.
        attended: whether it is also asked what attention does that rounds to bfloat16.
        tiles: whether registers of matrices multiply the weights of a chunk, see `Questions`.

    Returns:
        The cases of three prompts, what transformers makes of the text, and what rounding does.

    Raises:
        EngineError: transformers cannot run the model, or gives logits that say nothing.
        ModelFileError: a weight cannot be used.
    """
    generator = np.random.default_rng(seed)
    prompts = tuple(
        generator.integers(0, description.vocabulary, min(length, functions.context), dtype=np.int32)
        for length in (*_LENGTHS, functions.tokens)
    )
    parts = tuple(constants.quantised_parts(weights))
    prompt = 0 if text is None else min(_PROMPT, len(text), functions.context - 1)
    count = 0 if text is None else min(_CONTINUED, functions.context - prompt)
    sets = _rounded(weights, {one.matrix.name for one in parts})
    questions = Questions(
        prompts,
        text,
        prompt,
        count,
        sets,
        _MOST_ROUNDED,
        sum(functions.chunks),
        constants.half,
        cached=constants.kept == "int8",
        attended=attended,
        tiles=tiles,
        kept_halves=bool(parts) and constants.kept == "float16",
    )
    answers = reference_answers(folder, questions, parts)
    for tokens, logits in zip(prompts, answers.logits, strict=True):
        _check(folder, logits, len(tokens), description)
    *known, through = [Known(*one) for one in zip(prompts, answers.logits, strict=True)]
    least, further = (moved(answers.logits[-1], one) for one in (answers.rounded, answers.attended))
    scores = answers.chosen == 0 and len(sets) > 1
    golden = tuple(
        replace(case, spread=_spread(constants, bool(parts), answers))
        for case in (
            *(case for one in known for case in _steps(one, 0, len(one.tokens))),
            *_as_generated(through, functions, rounds=least <= _MOST_ROUNDED),
            *(_together(known, functions.sequences) if functions.sequences > 1 else ()),
        )
    )
    found = Golden(golden, None, least, further, scores, answers.kept_spread)
    if text is None:
        return found
    assert answers.text is not None
    _check(folder, answers.text, len(text), description)
    return replace(found, text=_text_reference(text, prompt, answers))


def _rounded(weights: DecoderWeights, quantised: Collection[str]) -> tuple[tuple[str, ...], ...]:
    """Sets of products whose activations may be rounded, the largest first, by the names of their weights.

    The largest has those that make queries and keys, where they have weights of their own. The products that
    make values are in none: rounding their activations moves logits further than queries and keys do.
    """
    if not quantised:
        return ()
    layers = weights.layers
    others = [product for layer in layers for product in (layer.output, layer.up, layer.down)]
    small = tuple(part.name for product in others for part in product.parts if part.name in quantised)
    scores = tuple(
        part.name
        for layer in layers
        if len(layer.query_key_value.parts) == _QUERY_KEY_VALUE
        for part in layer.query_key_value.parts[:2]
        if part.name in quantised
    )
    return ((*small, *scores), small) if scores else (small,)


def _steps(known: Known, begin: int, end: int) -> Iterator[GoldenCase]:
    for place in range(begin, end):
        yield GoldenCase((known.tokens[place : place + 1], _number(place)), (known.behind(place),))


def _as_generated(known: Known, functions: Functions, *, rounds: bool) -> Iterator[GoldenCase]:
    """The prompt by `prefill`, a draft by `verify`, and steps."""
    place = 0
    for count in functions.chunks:
        padded = np.zeros(functions.chunk, np.int32)
        padded[:count] = known.tokens[place : place + count]
        # With rounding, there are no logits: the steps behind show what the state holds.
        given = () if rounds else (known.behind(place + count - 1),)
        yield GoldenCase((padded, _number(place), _number(count - 1)), given, function=PREFILL)
        place += count
    if rounds:
        yield from _steps(known, place, place + _STEPS)
        place += _STEPS
    if functions.verified:
        end = place + functions.verified
        logits = np.ascontiguousarray(known.logits[place:end])
        yield GoldenCase((known.tokens[place:end], _number(place)), (logits,), function=VERIFY)
        place = end
    yield from _steps(known, place, len(known.tokens))


def _together(known: Sequence[Known], sequences: int) -> Iterator[GoldenCase]:
    """Each text begins a call after the one before it; until then, its first token is given again."""
    texts = [known[text % len(known)] for text in range(sequences)]
    for call in range(_TOGETHER + sequences - 1):
        places = np.maximum(call - np.arange(sequences, dtype=np.int32), 0)
        tokens = np.array([one.tokens[place] for one, place in zip(texts, places, strict=True)], np.int32)
        logits = [one.behind(place) for one, place in zip(texts, places, strict=True)]
        yield GoldenCase((tokens, places), (np.concatenate(logits),), function=TOGETHER)


def _spread(constants: Constants, quantised: bool, answers: Answers) -> float:
    """How far right logits may be from those of the reference, whose weights are those of the program.

    In half precision what lies between kernels is rounded too, which moves logits about as far as rounding
    the weights does.
    """
    if constants.half:
        return max(HALF_SPREADS["float16"], answers.half_spread)
    return QUANTISED_SPREAD if quantised else 0.0


def _number(value: int) -> np.ndarray:
    return np.array([value], np.int32)


def _text_reference(text: np.ndarray, prompt: int, answers: Answers) -> TextReference:
    assert answers.text is not None
    if answers.original is None:
        return TextReference(text, answers.text, FILE, prompt, answers.greedy)
    moved = divergence(answers.original, answers.text)
    return TextReference(text, answers.original, FLOATS, prompt, answers.greedy, moved)


def _check(folder: Path, logits: np.ndarray, tokens: int, description: DecoderDescription) -> None:
    if logits.shape != (tokens, description.vocabulary) or not np.isfinite(logits).all():
        raise EngineError(
            f"{folder.name}: transformers gives logits {list(logits.shape)} or some that are not finite: "
            "check the model in transformers"
        )
