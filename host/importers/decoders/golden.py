"""Golden cases of a decoder with the logits that transformers gives.

Three prompts go through main, a token at a time. A longer one goes through the functions for prompts, then
the one that verifies drafts, and ends in steps, as a text is generated. Where there are places for several
texts, the function for these begins the first prompts at different positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from device_agent.contract.manifest import LONG_PREFILL, PREFILL, TOGETHER, VERIFY
from host.errors import EngineError
from host.importers.decoders.constants import Constants
from host.importers.decoders.description import DecoderDescription, DecoderWeights
from host.importers.decoders.reference import Answers, Asked, Judgement, Part, Questions, reference_answers
from host.importers.decoders.reference.judgement import BETWEEN, CACHE, PRODUCTS
from host.importers.decoders.reference.roundings import ALLOWED, IN_HALVES, Roundings, judged_texts, parts_of
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
# Of a text of the user's: tokens that are continued, and tokens that continue them.
_PROMPT, _CONTINUED = 16, 64


@dataclass(frozen=True, eq=False)
class Golden:
    """What transformers makes of a model.

    Attributes:
        cases: of three prompts, in the order in which they run.
        text: what is known of a text of the user's; None without one.
        parts: of the program that might be rounded; none where no weight is quantised.
        judgement: what was found about them; None without.
    """

    cases: tuple[GoldenCase, ...]
    text: TextReference | None
    parts: tuple[Part, ...] = ()
    judgement: Judgement | None = None

    @property
    def roundings(self) -> Roundings:
        """What the program rounds."""
        return Roundings.of(self.parts, self.judgement)

    @property
    def left(self) -> float:
        """How far logits may be off by what is rounded; 0 where that was not judged."""
        return 0.0 if self.judgement is None else self.judgement.left

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines about what keeps its precision, and how far logits may be off all the same."""
        if self.judgement is None or len(self.judgement.rounded) == len(self.parts):
            return ()
        left = [one for number, one in enumerate(self.parts) if number not in self.judgement.rounded]
        lines = []
        if any(one.kind == CACHE for one in left):
            lines.append("keys and values are kept in float32")
        if any(one.kind == BETWEEN for one in left):
            lines.append("on CPUs, what lies between kernels is kept in float32")
        products = [one.name for one in left if one.kind == PRODUCTS]
        others = [one.name for one in left if one.kind not in (PRODUCTS, CACHE, BETWEEN)]
        if products and not self.roundings.products:
            lines.append("activations of prompts keep 16 bits")
        elif products or others:
            lines.append(f"in prompts, {', '.join([*products, *others])} keep their precision")
        said = f"with all of it rounded, logits could move by {self.judgement.all:.1e} of the largest"
        notes = [f"{'; '.join(lines)}: {said}"]
        if self.judgement.left > ALLOWED:
            notes.append(
                f"logits can be off by {self.judgement.left:.1e} of the largest all the same: the model "
                "enlarges the least rounding. Deploy it in float32, without --quantize and --dtype"
            )
        return tuple(notes)


@dataclass(frozen=True)
class Functions:
    """The functions that are to be verified.

    Attributes:
        context: positions that there are.
        chunk: tokens of a call of `prefill`.
        verified: tokens of a call of `verify`; 0 where there is none.
        sequences: texts of a call of `together`; 1 where there is none.
        long_chunk: tokens of a call of `long_prefill`, at most a quarter of the context; 0 without.
    """

    context: int
    chunk: int
    verified: int = 0
    sequences: int = 1
    long_chunk: int = 0

    @property
    def chunks(self) -> tuple[tuple[str, int, int], ...]:
        """Calls for a prompt: a function, the tokens that it takes, and how many of them are the prompt's.

        A whole chunk and a part of one, where both have places, and behind them, at a position that is no
        multiple of its length, a whole long one.
        """
        if 2 * self.chunk > self.context:
            part = max(1, min(self.chunk, self.context - self.verified - 2 * _STEPS))
            return ((PREFILL, self.chunk, part),)
        short = (PREFILL, self.chunk, self.chunk), (PREFILL, self.chunk, -(-3 * self.chunk // 8))
        return (*short, (LONG_PREFILL, self.long_chunk, self.long_chunk)) if self.long_chunk else short

    @property
    def tokens(self) -> int:
        """Of the prompt that goes through these functions, `verify` and steps."""
        prompt = sum(count for _, _, count in self.chunks)
        steps = 3 * _STEPS if self.long_chunk else 2 * _STEPS
        return min(self.context, prompt + self.verified + steps)


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
    sample: Sequence[int] = (),
    *,
    attended: bool = False,
    tiles: bool = False,
    half_sums: bool = False,
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
        sample: tokens of a text in English, by the tokenizer of the model.
        attended: whether attention may round what it multiplies to bfloat16.
        tiles: whether registers of matrices multiply the weights of a chunk, see `Asked`.
        half_sums: whether products in half precision add up in it.

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
    rounded = parts_of(
        description,
        weights,
        {one.matrix.name for one in parts},
        attention=attended,
        halves=constants.kept == "float16",
        tiles=tiles,
    )
    rounded = IN_HALVES if constants.half else rounded
    judged = judged_texts(description.vocabulary, functions.context, generator, sample)
    questions = Questions(
        prompts,
        text,
        prompt,
        count,
        constants.half,
        cached=constants.kept == "int8",
        judged=Asked(judged, rounded, ALLOWED, tiles, half_sums) if rounded else None,
    )
    answers = reference_answers(folder, questions, parts)
    for tokens, logits in zip(prompts, answers.logits, strict=True):
        _check(folder, logits, len(tokens), description)
    *known, through = [Known(*one) for one in zip(prompts, answers.logits, strict=True)]
    found = Golden((), None, rounded, answers.judgement)
    golden = tuple(
        replace(case, spread=_spread(constants, bool(parts), answers))
        for case in (
            *(case for one in known for case in _steps(one, 0, len(one.tokens))),
            *_as_generated(through, functions, rounds=found.roundings.products),
            *(_together(known, functions.sequences) if functions.sequences > 1 else ()),
        )
    )
    found = replace(found, cases=golden)
    if text is None:
        return found
    assert answers.text is not None
    _check(folder, answers.text, len(text), description)
    return replace(found, text=_text_reference(text, prompt, answers))


def _steps(known: Known, begin: int, end: int) -> Iterator[GoldenCase]:
    for place in range(begin, end):
        yield GoldenCase((known.tokens[place : place + 1], _number(place)), (known.behind(place),))


def _as_generated(known: Known, functions: Functions, *, rounds: bool) -> Iterator[GoldenCase]:
    """The prompt by `prefill` and `long_prefill`, a draft by `verify`, and steps."""
    place = 0
    for function, size, count in functions.chunks:
        if function == LONG_PREFILL:
            # They tell which of the two is wrong.
            yield from _steps(known, place, place + _STEPS)
            place += _STEPS
        padded = np.zeros(size, np.int32)
        padded[:count] = known.tokens[place : place + count]
        # With rounding, there are no logits: the steps behind show what the state holds.
        given = () if rounds else (known.behind(place + count - 1),)
        yield GoldenCase((padded, _number(place), _number(count - 1)), given, function=function)
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
    the weights does. Keys and values that become bytes may lie so near to the middle between two that another
    order of sums decides.
    """
    if constants.half:
        return max(HALF_SPREADS["float16"], answers.half_spread)
    return QUANTISED_SPREAD if quantised or constants.kept == "int8" else 0.0


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
