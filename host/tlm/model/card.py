"""The card of a checkpoint, read from its files without loading a network.

A checkpoint is a folder: `weights.safetensors` in half precision, and `model.json` with the card, which has
the digest of the weights.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from device_agent.contract.text import printable
from host.errors import TlmError
from host.tlm.language.vocabulary import Vocabulary

SCHEMA = "edgetlm.tlm/2"
WEIGHTS, CARD = "weights.safetensors", "model.json"
_LARGEST_CARD_BYTES = 1 << 20


@dataclass(frozen=True)
class Size:
    """Dimensions of the network.

    Attributes:
        layers, heads, width: of the transformer.
        positions: longest sentence.
    """

    layers: int = 5
    heads: int = 5
    width: int = 160
    positions: int = 256


@dataclass(frozen=True)
class Card:
    """The description of a checkpoint.

    Attributes:
        vocabulary: version of the vocabulary of its rows.
        tokens: number of tokens of that vocabulary.
        untrained: tokens that were appended after the pre-training and that no training has seen; their rows
            are the means of their classes.
        rules: version of each rule whose programs it was trained on, by name.
        size: dimensions.
        base: digest of the weights that training started from; "" for random ones.
        weights: digest of the weights.
        training: how it was made, for people: data, seeds, steps, losses.
    """

    vocabulary: str
    tokens: int
    untrained: tuple[str, ...]
    rules: dict[str, int]
    size: Size
    base: str
    weights: str
    training: dict[str, Any] = field(default_factory=dict)

    def outdated(self, versions: Mapping[str, int]) -> tuple[str, ...]:
        """Rules that have changed since the programs that the model was trained on.

        The model still writes legal programs of such a rule; fine-tuning on new records brings it up to date.

        Args:
            versions: of the present rules, by name.
        """
        return tuple(name for name, known in self.rules.items() if versions.get(name, known) != known)

    @property
    def root(self) -> str:
        """Digest of the pre-trained weights: its own, or those of its base."""
        return self.base or self.weights


def read_card(folder: Path) -> Card:
    """Read the card of a checkpoint.

    Raises:
        TlmError: it is missing or damaged.
    """
    path = folder / CARD
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST_CARD_BYTES + 1)
        if len(text) > _LARGEST_CARD_BYTES:
            raise TlmError(f"{path}: more than {_LARGEST_CARD_BYTES} bytes; copy the model again")
        content = json.loads(text)
        if content["schema"] != SCHEMA:
            schema = printable(str(content["schema"]), 40)
            raise TlmError(f"{path}: schema {schema}, this is {SCHEMA}; train the model again")
        return Card(
            vocabulary=str(content["vocabulary"]),
            tokens=int(content["tokens"]),
            untrained=tuple(map(str, content["untrained"])),
            rules={str(name): int(version) for name, version in content["rules"].items()},
            size=Size(**{name: int(value) for name, value in content["size"].items()}),
            base=str(content["base"]),
            weights=str(content["weights"]),
            training=dict(content["training"]),
        )
    except OSError as error:
        raise TlmError(f"{path}: no language model there ({error.strerror or error})") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TlmError(
            f"{path} is damaged ({type(error).__name__}: {error}); copy the model again"
        ) from error


def extended(card: Card, vocabulary: Vocabulary, folder: Path) -> Card:
    """The card of a checkpoint after rows are appended for new tokens of the vocabulary.

    Raises:
        TlmError: the vocabulary of the checkpoint is not the beginning of this one.
    """
    vocabulary.check_prefix(card.tokens, card.vocabulary, str(folder))
    unknown = set(card.untrained).difference(vocabulary.tokens[: card.tokens])
    if unknown:
        raise TlmError(
            f"{folder / CARD} is damaged (untrained: {printable(min(unknown), 40)}); copy the model again"
        )
    untrained = (*card.untrained, *vocabulary.tokens[card.tokens :])
    return replace(card, vocabulary=vocabulary.version, tokens=len(vocabulary), untrained=untrained)


def read_weights(folder: Path, vocabulary: Vocabulary) -> tuple[bytes, Card]:
    """The bytes of a checkpoint's weight file, and its card.

    Raises:
        TlmError: it is missing, damaged, or its vocabulary is not the beginning of this one.
    """
    card = read_card(folder)
    extended(card, vocabulary, folder)
    path = folder / WEIGHTS
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TlmError(f"{path}: {error.strerror or error}; train the model again") from error
    if hashlib.sha256(data).hexdigest() != card.weights:
        raise TlmError(f"{path}: the weights do not match {CARD}; copy both files of the model again")
    return data, card
