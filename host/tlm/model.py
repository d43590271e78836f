"""The language model: a small GPT-2, and its files.

A checkpoint is a folder: `weights.safetensors` in half precision, and `model.json` with what it was made of
and the digest of the weights.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from transformers import GPT2Config, GPT2LMHeadModel

from host.errors import TlmError
from host.model import SPACE_VERSION
from host.tlm.vocabulary import Vocabulary

SCHEMA = "edgetlm.tlm/1"
WEIGHTS, CARD = "weights.safetensors", "model.json"
_LARGEST_PARAMETERS = 8_000_000


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


def new_model(vocabulary: Vocabulary, size: Size, seed: int) -> GPT2LMHeadModel:
    """A network with random weights; the same seed gives the same.

    Raises:
        TlmError: it would have more than eight million parameters.
    """
    config = GPT2Config(
        vocab_size=len(vocabulary),
        n_positions=size.positions,
        n_embd=size.width,
        n_layer=size.layers,
        n_head=size.heads,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = GPT2LMHeadModel(config)
    count = sum(parameter.numel() for parameter in model.parameters())
    if count > _LARGEST_PARAMETERS:
        raise TlmError(
            f"a model of {count} parameters is too large: at most {_LARGEST_PARAMETERS}; choose a size"
        )
    return model


def save_model(
    model: GPT2LMHeadModel,
    folder: Path,
    vocabulary: Vocabulary,
    size: Size,
    base: str,
    training: dict[str, Any],
) -> Card:
    """Writes a checkpoint; weights first, so that a cut-off one is noticed by its digest."""
    folder.mkdir(parents=True, exist_ok=True)
    # The output layer is the embedding: it is written once.
    tensors = {
        name: tensor.detach().to(torch.float16).contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"
    }
    data = save_tensors(tensors)
    card = Card(vocabulary.version, SPACE_VERSION, size, base, hashlib.sha256(data).hexdigest(), training)
    write_whole(folder / WEIGHTS, data)
    content = {"schema": SCHEMA, **asdict(card)}
    write_whole(folder / CARD, (json.dumps(content, indent=1) + "\n").encode())
    return card


def load_model(folder: Path, vocabulary: Vocabulary) -> tuple[GPT2LMHeadModel, Card]:
    """A checkpoint, ready to be asked.

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
    model = new_model(vocabulary, card.size, seed=0)
    try:
        tensors = {name: tensor.float() for name, tensor in load_tensors(data).items()}
        model.load_state_dict({**tensors, "lm_head.weight": tensors["transformer.wte.weight"]})
    except (SafetensorError, RuntimeError, KeyError) as error:
        first = str(error).splitlines()[0]
        raise TlmError(f"{path}: weights do not fit the model ({first}); train it again") from error
    return model.eval(), card


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


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all."""
    partial = path.with_name(f".{path.name}.part")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
