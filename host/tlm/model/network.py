"""The language model: a small GPT-2, made, written and read."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from transformers import GPT2Config, GPT2LMHeadModel

from host.errors import TlmError
from host.model import SPACE_VERSION
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.card import CARD, SCHEMA, WEIGHTS, Card, Size, read_weights, write_whole

_LARGEST_PARAMETERS = 8_000_000


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
    data, card = read_weights(folder, vocabulary)
    model = new_model(vocabulary, card.size, seed=0)
    try:
        tensors = {name: tensor.float() for name, tensor in load_tensors(data).items()}
        model.load_state_dict({**tensors, "lm_head.weight": tensors["transformer.wte.weight"]})
    except (SafetensorError, RuntimeError, KeyError) as error:
        first, path = str(error).splitlines()[0], folder / WEIGHTS
        raise TlmError(f"{path}: weights do not fit the model ({first}); train it again") from error
    return model.eval(), card
