"""What the prefill and the state of a decoder may round, and the texts by which that is judged."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from host.importers.decoders.description import DecoderDescription, DecoderWeights, LayerWeights, Product
from host.importers.decoders.reference.judgement import (
    ATTENTION,
    BETWEEN,
    CACHE,
    PRODUCTS,
    SCORES,
    Judgement,
    Part,
)

# How far logits may be off, as part of the largest behind the same token: what a verification allows.
ALLOWED = 1e-2
# Tokens of each text that is judged: every one of them is the end of a prompt.
_TOKENS = 64
# Different tokens of the text that repeats them.
_REPEATED = 6
# Pieces of the layers whose products are judged apart.
_PIECES = 4
# Matrices that make queries, keys and values where they are not one.
_QUERY_KEY_VALUE = 3
# What parts cost that keep their precision, in multiplications for a token: products of numbers of 16 bits
# are two of bytes, or three in registers of matrices; attention in single precision has no such registers. A
# cache in single precision takes twice the memory, which every token reads again: half of all products.
_MORE_BYTES, _MORE_TILES, _MORE_ATTENTION, _MORE_CACHE = 1.0, 2.0, 8.0, 0.5
# Positions that a token of a prompt reads, in the mean.
_POSITIONS = 256


@dataclass(frozen=True)
class Roundings:
    """What a program rounds further than its steps do.

    Attributes:
        products: whether products of the prefill do.
        scores: whether those are among them that make queries and keys.
        attention: whether the attention of the prefill does.
        halves: whether keys and values that could be kept in half precision are.
        exact: weights of products that do not beside others that do, by their names in the files.
        between: whether what lies between kernels of a model in half precision is in it.
    """

    products: bool = False
    scores: bool = False
    attention: bool = False
    halves: bool = True
    exact: frozenset[str] = frozenset()
    between: bool = True

    @classmethod
    def of(cls, parts: Sequence[Part], judgement: Judgement | None) -> Roundings:
        """By what was found about the parts."""
        if judgement is None:
            return cls()
        chosen = {one.kind for number, one in enumerate(parts) if number in judgement.rounded}
        left = [one for number, one in enumerate(parts) if number not in judgement.rounded]
        return cls(
            PRODUCTS in chosen,
            SCORES in chosen,
            ATTENTION in chosen,
            not any(one.kind == CACHE for one in left),
            frozenset(name for one in left if one.kind == PRODUCTS for name in one.products),
            not any(one.kind == BETWEEN for one in left),
        )


# Of a model in half precision.
IN_HALVES = (Part(BETWEEN, "what lies between kernels", 1.0),)


def parts_of(
    description: DecoderDescription,
    weights: DecoderWeights,
    quantised: Collection[str],
    *,
    attention: bool,
    halves: bool,
    tiles: bool,
) -> tuple[Part, ...]:
    """The parts of a program that may be rounded; none where no weight is quantised.

    The products that make values are in none: the cache keeps what rounding does to them, and logits move
    further by it than by queries and keys.

    Args:
        description: of the model.
        weights: where its weights lie.
        quantised: their names, of those that are.
        attention: whether the target multiplies numbers of bfloat16 faster than others.
        halves: whether keys and values are to be kept in half precision.
        tiles: whether registers of matrices multiply.
    """
    if not quantised:
        return ()
    more = _MORE_TILES if tiles else _MORE_BYTES
    layers = weights.layers
    parts, total = [], 0.0
    for numbers in np.array_split(np.arange(len(layers)), min(_PIECES, len(layers))):
        products = [product for number in numbers for product in _products(layers[number])]
        first, last = int(numbers[0]), int(numbers[-1])
        which = f"of layers {first} to {last}" if last > first else f"of layer {first}"
        size = sum(part.rows * part.columns for product in products for part in product.parts)
        total += size
        parts.append(Part(PRODUCTS, f"products {which}", more * size, _names(products, quantised)))
    scores = [
        part
        for layer in layers
        if len(layer.query_key_value.parts) == _QUERY_KEY_VALUE
        for part in layer.query_key_value.parts[:2]
        if part.name in quantised
    ]
    if scores:
        size = sum(part.rows * part.columns for part in scores)
        names = tuple(part.name for part in scores)
        parts.append(Part(SCORES, "products that make queries and keys", more * size, names))
    if attention:
        size = 2 * len(layers) * description.heads * description.head_size * _POSITIONS
        parts.append(Part(ATTENTION, "attention", _MORE_ATTENTION * size))
    if halves:
        parts.append(Part(CACHE, "keys and values", _MORE_CACHE * total))
    return tuple(parts)


def judged_texts(
    vocabulary: int, context: int, generator: np.random.Generator, sample: Sequence[int] = ()
) -> np.ndarray:
    """Texts of one length by which roundings are judged: (3, T) int32.

    One has random tokens. One is English where the tokenizer makes enough tokens of it, and otherwise has the
    first tokens of a vocabulary often and others seldom. One repeats a few tokens.

    Args:
        vocabulary: tokens that the model knows.
        context: positions that there are.
        generator: draws tokens.
        sample: a text in English as tokens.
    """
    length = min(_TOKENS, context)
    random = generator.integers(0, vocabulary, length, dtype=np.int32)
    known = [token for token in sample if 0 <= token < vocabulary][:length]
    if len(known) < length:
        # As words of a text are: the n-th is 1/n as frequent as the first.
        ranks = np.exp(generator.random(length) * np.log(vocabulary + 1)).astype(np.int64) - 1
        known = np.clip(ranks, 0, vocabulary - 1).tolist()
    few = generator.integers(0, vocabulary, min(_REPEATED, vocabulary), dtype=np.int32)
    repeated = few[generator.integers(0, len(few), length)]
    return np.stack([random, np.array(known, np.int32), repeated])


def _products(layer: LayerWeights) -> tuple[Product, ...]:
    return layer.output, layer.up, layer.down


def _names(products: Sequence[Product], quantised: Collection[str]) -> tuple[str, ...]:
    return tuple(part.name for product in products for part in product.parts if part.name in quantised)
