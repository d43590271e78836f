"""The language model: a small GPT-2, made, written and read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from host.errors import TlmError
from host.files import write_whole
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.card import CARD, SCHEMA, WEIGHTS, Card, Size, extended, read_weights
from host.tlm.model.gpt2 import LanguageModel

_LARGEST_PARAMETERS = 8_000_000
# Rows by token, which are the output layer too.
_EMBEDDING = "transformer.wte.weight"


def new_model(vocabulary: Vocabulary, size: Size, seed: int) -> LanguageModel:
    """A network with random weights; the same seed gives the same.

    Raises:
        TlmError: it would have more than eight million parameters, or its width is no multiple of its heads.
    """
    count = _parameters(len(vocabulary), size)
    if min(size.layers, size.heads, size.positions) < 1 or size.width % size.heads:
        raise TlmError(f"a model of {size} cannot be made; choose a width that the number of heads divides")
    if count > _LARGEST_PARAMETERS:
        raise TlmError(
            f"a model of {count} parameters is too large: at most {_LARGEST_PARAMETERS}; choose a size"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LanguageModel(len(vocabulary), size.positions, size.layers, size.heads, size.width)


def _parameters(tokens: int, size: Size) -> int:
    """Parameters of GPT-2. A layer of width w has 4 w^2 for attention, 8 w^2 for feed-forward, 13 w more."""
    width = size.width
    return (tokens + size.positions + 2) * width + size.layers * (12 * width + 13) * width


def save_model(
    model: LanguageModel,
    folder: Path,
    vocabulary: Vocabulary,
    size: Size,
    base: str,
    training: dict[str, Any],
    rules: Mapping[str, int] | None = None,
    untrained: tuple[str, ...] = (),
) -> Card:
    """Write a checkpoint, weights first, so that the digest reveals an incomplete one.

    Args:
        model: the network.
        folder: of the checkpoint.
        vocabulary: of the network.
        size: of the network.
        base: digest of the weights that training started from; "" for random ones.
        training: how it was made, for people.
        rules: version of each rule whose programs it was trained on; None for none.
        untrained: tokens that were appended and that no training has seen.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: tensor.detach().to(torch.float16).contiguous() for name, tensor in model.state_dict().items()
    }
    data = save_tensors(tensors)
    card = Card(
        vocabulary=vocabulary.version,
        tokens=len(vocabulary),
        untrained=untrained,
        rules=dict(rules or {}),
        size=size,
        base=base,
        weights=hashlib.sha256(data).hexdigest(),
        training=training,
    )
    write_whole(folder / WEIGHTS, data)
    content = {"schema": SCHEMA, **asdict(card)}
    write_whole(folder / CARD, (json.dumps(content, indent=1) + "\n").encode())
    return card


def load_model(folder: Path, vocabulary: Vocabulary) -> tuple[LanguageModel, Card]:
    """Load the network and the card of a checkpoint.

    If the vocabulary has grown since, network and card are extended to the whole vocabulary: the row of an
    appended token is the mean of its class.

    Raises:
        TlmError: it is missing, damaged, or its vocabulary is not the beginning of this one.
    """
    data, card = read_weights(folder, vocabulary)
    model = new_model(vocabulary, card.size, seed=0)
    try:
        tensors = {name: tensor.float() for name, tensor in load_tensors(data).items()}
        if len(tensors[_EMBEDDING]) == card.tokens:
            tensors[_EMBEDDING] = _with_appended_rows(tensors[_EMBEDDING], vocabulary)
        model.load_state_dict(tensors)
    except (SafetensorError, RuntimeError, KeyError) as error:
        first, path = str(error).splitlines()[0], folder / WEIGHTS
        raise TlmError(f"{path}: weights do not fit the model ({first}); train it again") from error
    return model.eval(), extended(card, vocabulary, folder)


def _with_appended_rows(rows: torch.Tensor, vocabulary: Vocabulary) -> torch.Tensor:
    """(tokens of the vocabulary, width) rows out of (tokens of the checkpoint, width) rows."""
    known = vocabulary.classes[: len(rows)]
    means = []
    for kind in vocabulary.classes[len(rows) :]:
        like = [number for number, other in enumerate(known) if other == kind]
        # The first token of a new class is like any other token.
        means.append(rows[like or slice(None)].mean(dim=0, keepdim=True))
    return torch.cat([rows, *means])
