"""How an architecture is written in GGUF files: what its module in `architectures` has as `GGUF`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from host.importers.decoders.config import Config

# Fields beside the common ones, out of the metadata and the names of the tensors.
Fields = Callable[[Config, Collection[str]], dict[str, Any]]


@dataclass(frozen=True)
class GgufForm:
    """An architecture in GGUF files.

    Attributes:
        kind: value of `general.architecture`, which begins the names of its metadata.
        interleaved: whether rows of queries and keys are ordered for a rotation of neighbours, as the
            converter of llama.cpp does it for LLaMA.
        norm_offset: that the weights of norms have been enlarged by.
        sandwich: whether both parts are normalised before they are added.
        fused: whether queries, keys and values are one matrix, and so are gate and up.
        partial: whether a part of each head may rotate.
        keys: metadata after `kind` that `fields` reads, beside the common ones.
        fields: makes fields of config.json beside the common ones; None for none.
    """

    kind: str
    interleaved: bool = False
    norm_offset: float = 0.0
    sandwich: bool = False
    fused: bool = False
    partial: bool = False
    keys: tuple[str, ...] = ()
    fields: Fields | None = None
