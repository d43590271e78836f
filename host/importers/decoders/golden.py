"""Golden cases of a decoder: one text, a token at a time, with the logits that transformers gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from host.errors import EngineError
from host.importers.decoders.constants import Constants
from host.importers.decoders.description import DecoderDescription, DecoderWeights
from host.importers.decoders.reference import reference_logits
from host.model import GoldenCase

# Tokens of the text, where the context has places for so many.
_TOKENS = 24
# Beside quantised weights, keys and values are kept in half precision: logits of 12 random layers move by
# 5e-4 of the largest. The verification allows twice the spread.
QUANTISED_SPREAD = 5e-3


def make_golden(
    folder: Path,
    description: DecoderDescription,
    weights: DecoderWeights,
    constants: Constants,
    context: int,
    seed: int,
) -> tuple[GoldenCase, ...]:
    """Cases in the order in which they run: the state makes each depend on those before it.

    Args:
        folder: of the model.
        description: its sizes.
        weights: where its weights lie.
        constants: its weights, quantised or not.
        context: positions that there are.
        seed: of the text.

    Raises:
        EngineError: transformers cannot run the model, or gives logits that say nothing.
        ModelFileError: a weight cannot be used.
    """
    generator = np.random.default_rng(seed)
    tokens = generator.integers(0, description.vocabulary, min(_TOKENS, context), dtype=np.int32)
    parts = tuple(constants.quantised_parts(weights))
    logits = reference_logits(folder, tokens, parts)
    if logits.shape != (len(tokens), description.vocabulary) or not np.isfinite(logits).all():
        raise EngineError(
            f"{folder.name}: transformers gives logits {list(logits.shape)} or some that are not finite: "
            "check the model in transformers"
        )
    return tuple(
        GoldenCase(
            (tokens[position : position + 1], np.array([position], np.int32)),
            (np.ascontiguousarray(logits[position : position + 1]),),
            QUANTISED_SPREAD if parts else 0.0,
        )
        for position in range(len(tokens))
    )
