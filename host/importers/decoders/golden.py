"""Golden cases of a decoder: three prompts, a token at a time, with the logits that transformers gives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from host.errors import EngineError
from host.importers.decoders.constants import Constants
from host.importers.decoders.description import DecoderDescription, DecoderWeights
from host.importers.decoders.reference import Answers, Questions, reference_answers
from host.model import GoldenCase
from host.model.text_quality import FILE, FLOATS, TextReference, divergence

# Tokens of the prompts, where the context has places for so many. The first fills more than one block of the
# keys.
_LENGTHS = (24, 8, 8)
# Beside quantised weights, keys and values are kept in half precision: logits of 12 random layers move by
# 5e-4 of the largest. The verification allows twice the spread.
QUANTISED_SPREAD = 5e-3
# How far the logits behind a prompt with rounded activations may be off, as part of the largest, so that the
# prefill of a model rounds them to bytes. With what else differs, they stay within 1e-2.
_MOST_ROUNDED = 8e-3
# Of a text of the user's: tokens that are continued, and tokens that continue them.
_PROMPT, _CONTINUED = 16, 64


@dataclass(frozen=True, eq=False)
class Golden:
    """What transformers makes of a model.

    Attributes:
        cases: of three prompts, in the order in which they run.
        text: what is known of a text of the user's; None without one.
        rounded: how far logits move, as part of the largest, where activations of the products of a prompt
            are rounded to bytes; infinite where no weight is quantised.
    """

    cases: tuple[GoldenCase, ...]
    text: TextReference | None
    rounded: float

    @property
    def rounds(self) -> bool:
        """Whether the prefill may round activations to bytes."""
        return self.rounded <= _MOST_ROUNDED


def make_golden(
    folder: Path,
    description: DecoderDescription,
    weights: DecoderWeights,
    constants: Constants,
    context: int,
    seed: int,
    text: np.ndarray | None = None,
) -> Golden:
    """Cases in the order in which they run: the state makes each depend on those before it.

    Args:
        folder: of the model.
        description: its sizes.
        weights: where its weights lie.
        constants: its weights, quantised or not.
        context: positions that there are.
        seed: of the prompts.
        text: (n) int32 tokens of a text of the user's, two or more; None without.

    Returns:
        The cases of three prompts, what transformers makes of the text, and what rounding does.

    Raises:
        EngineError: transformers cannot run the model, or gives logits that say nothing.
        ModelFileError: a weight cannot be used.
    """
    generator = np.random.default_rng(seed)
    prompts = tuple(
        generator.integers(0, description.vocabulary, min(length, context), dtype=np.int32)
        for length in _LENGTHS
    )
    parts = tuple(constants.quantised_parts(weights))
    prompt = 0 if text is None else min(_PROMPT, len(text), context - 1)
    count = 0 if text is None else min(_CONTINUED, context - prompt)
    layers = weights.layers if parts else ()
    rounded = tuple(
        part.name
        for layer in layers
        for product in (layer.output, layer.up, layer.down)
        for part in product.parts
        if part.name in {one.matrix.name for one in parts}
    )
    questions = Questions(prompts, text, prompt, count, rounded if len(prompts[0]) > 1 else ())
    answers = reference_answers(folder, questions, parts)
    for tokens, logits in zip(prompts, answers.logits, strict=True):
        _check(folder, logits, len(tokens), description)
    golden = tuple(
        GoldenCase(
            (tokens[position : position + 1], np.array([position], np.int32)),
            (np.ascontiguousarray(logits[position : position + 1]),),
            QUANTISED_SPREAD if parts else 0.0,
        )
        for tokens, logits in zip(prompts, answers.logits, strict=True)
        for position in range(len(tokens))
    )
    moved = _moved(answers)
    if text is None:
        return Golden(golden, None, moved)
    assert answers.text is not None
    _check(folder, answers.text, len(text), description)
    return Golden(golden, _text_reference(text, prompt, answers), moved)


def _moved(answers: Answers) -> float:
    """How far rounding the beginning of the first text moves its last logits, as part of the largest."""
    if answers.rounded is None:
        return math.inf
    exact = answers.logits[0][-len(answers.rounded) :]
    moved = float(np.abs(exact - answers.rounded).max() / np.abs(exact).max())
    return math.inf if math.isnan(moved) else moved


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
