"""What a checkpoint is, told from its files without loading a network.

A checkpoint is a folder: `weights.safetensors` in half precision, and `model.json` with what it was made of
and the digest of the weights.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from host.errors import TlmError
from host.model import SPACE_VERSION
from host.tlm.language.vocabulary import Vocabulary

SCHEMA = "edgetlm.tlm/1"
WEIGHTS, CARD = "weights.safetensors", "model.json"


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
    """What a checkpoint is.

    Attributes:
        vocabulary: version of the vocabulary.
        space_version: version of the design spaces.
        size: dimensions.
        base: digest of the weights that training started from; "" for random ones.
        weights: digest of the weights.
        training: how it was made, for people: data, seeds, steps, losses.
    """

    vocabulary: str
    space_version: int
    size: Size
    base: str
    weights: str
    training: dict[str, Any] = field(default_factory=dict)

    @property
    def root(self) -> str:
        """Digest of the weights that were trained from random ones: its own or its base's."""
        return self.base or self.weights


def read_card(folder: Path) -> Card:
    """What a checkpoint says of itself.

    Raises:
        TlmError: it is missing or damaged.
    """
    path = folder / CARD
    try:
        content = json.loads(path.read_text())
        if content["schema"] != SCHEMA:
            raise TlmError(f"{path}: schema {content['schema']!r}, this is {SCHEMA}; train the model again")
        return Card(
            vocabulary=str(content["vocabulary"]),
            space_version=int(content["space_version"]),
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


def read_weights(folder: Path, vocabulary: Vocabulary) -> tuple[bytes, Card]:
    """The weights of a checkpoint as they lie on disk, whole and of this version.

    Raises:
        TlmError: it is missing, damaged, or of another vocabulary or space version.
    """
    card = read_card(folder)
    if card.vocabulary != vocabulary.version:
        raise TlmError(
            f"{folder}: language model of vocabulary {card.vocabulary}, this is {vocabulary.version}; "
            "train it again"
        )
    if card.space_version != SPACE_VERSION:
        raise TlmError(
            f"{folder}: language model of space version {card.space_version}, this is {SPACE_VERSION}; "
            "train it again"
        )
    path = folder / WEIGHTS
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TlmError(f"{path}: {error.strerror or error}; train the model again") from error
    if hashlib.sha256(data).hexdigest() != card.weights:
        raise TlmError(f"{path}: not the weights that {CARD} is of; copy the model again, both files")
    return data, card


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all."""
    partial = path.with_name(f".{path.name}.part")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
