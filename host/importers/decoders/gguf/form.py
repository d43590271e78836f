"""How an architecture is written in GGUF files: what its module in `architectures` has as `GGUF`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
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
        whole: makes all fields but `model_type` and `vocab_size`; None where the common ones are there.
            `keys` has all metadata then.
        outer: names in transformers of tensors beside the layers, instead of the common ones.
        inner: names of those in layers, without their ends, instead of the common ones.
        layers: what stands before the number of a layer in transformers.
        transposed: names in transformers of products, whose matrices folders have as (columns, rows).
    """

    kind: str
    interleaved: bool = False
    norm_offset: float = 0.0
    sandwich: bool = False
    fused: bool = False
    partial: bool = False
    keys: tuple[str, ...] = ()
    fields: Fields | None = None
    whole: Fields | None = None
    outer: Mapping[str, str] = field(default_factory=dict)
    inner: Mapping[str, str] = field(default_factory=dict)
    layers: str = "model.layers"
    transposed: tuple[str, ...] = ()
