"""Metadata of a GGUF file as the fields that config.json of the same model has."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from host.importers.decoders.config import (
    MAX_HEAD_SIZE,
    MAX_HEADS,
    MAX_HIDDEN,
    MAX_INTERMEDIATE,
    MAX_LAYERS,
    MAX_POSITIONS,
    Config,
)
from host.importers.decoders.gguf.form import GgufForm

_WHOLE = {
    "num_hidden_layers": ("block_count", MAX_LAYERS),
    "hidden_size": ("embedding_length", MAX_HIDDEN),
    "intermediate_size": ("feed_forward_length", MAX_INTERMEDIATE),
    "num_attention_heads": ("attention.head_count", MAX_HEADS),
    "max_position_embeddings": ("context_length", MAX_POSITIONS),
}
_FREQUENCIES = "rope_freqs.weight"
_SHORT, _LONG = "rope_factors_short.weight", "rope_factors_long.weight"
FACTORS = (_FREQUENCIES, _SHORT, _LONG)
"""Tensors of what the frequencies of the rotation are divided by."""

# What changes nothing, or is read below.
_KNOWN = (
    "vocab_size",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.attn_factor",
    "rope.scaling.finetuned",
)


def as_fields(
    metadata: Config,
    form: GgufForm,
    kind: str,
    vocabulary: int,
    names: Collection[str],
    factors: Mapping[str, list[float]],
) -> dict[str, Any]:
    """Fields of config.json.

    Args:
        metadata: of the file.
        form: of the architecture.
        kind: its `model_type`.
        vocabulary: rows of the embedding.
        names: of the tensors.
        factors: that the frequencies of the rotation are divided by, by the names in `FACTORS`.

    Raises:
        ImportFailed: metadata that is not known, or asks for what is not implemented.
        ModelFileError: a value is missing or out of range.
    """
    _only_known(metadata, form)
    fields: dict[str, Any] = {"model_type": kind, "vocab_size": vocabulary}
    if form.whole is not None:
        return fields | form.whole(metadata, names)
    for name, (key, most) in _WHOLE.items():
        fields[name] = metadata.whole(f"{form.kind}.{key}", 1, most)
    heads = fields["num_attention_heads"]
    fields["num_key_value_heads"] = metadata.whole(
        f"{form.kind}.attention.head_count_kv", 1, MAX_HEADS, heads
    )
    usual = max(fields["hidden_size"] // heads, 1)
    size = metadata.whole(f"{form.kind}.attention.key_length", 1, MAX_HEAD_SIZE, min(usual, MAX_HEAD_SIZE))
    metadata.only(f"{form.kind}.attention.value_length", size)
    rotated = metadata.whole(f"{form.kind}.rope.dimension_count", 1, MAX_HEAD_SIZE, size)
    if not form.partial:
        metadata.only(f"{form.kind}.rope.dimension_count", size)
    epsilon = metadata.number(f"{form.kind}.attention.layer_norm_rms_epsilon", 0.0, 1.0)
    fields |= {
        "head_dim": size,
        "rms_norm_eps": epsilon,
        "rope_parameters": rotation(metadata, form, factors),
    }
    if rotated != size:
        fields["rope_parameters"]["partial_rotary_factor"] = rotated / size
    fields["tie_word_embeddings"] = "output.weight" not in names
    return fields | (form.fields(metadata, names) if form.fields is not None else {})


def rotation(metadata: Config, form: GgufForm, factors: Mapping[str, list[float]]) -> dict[str, Any]:
    """The parameters of the rotation.

    Raises:
        ImportFailed: a kind that is not implemented.
        ModelFileError: a value is out of range.
    """
    prefix = f"{form.kind}.rope"
    made: dict[str, Any] = {"rope_theta": metadata.number(f"{prefix}.freq_base", 1.0, 1e12, 10000.0)}
    kind = metadata.text(f"{prefix}.scaling.type", 40, "none")
    if _FREQUENCIES in factors:
        # LLaMA 3: what its parameters make of each frequency, as the only form of both kinds that names them.
        if kind != "none":
            raise metadata.unsupported(f"rope_freqs.weight with {prefix}.scaling.type {kind!r}")
        positions = metadata.whole(f"{form.kind}.context_length", 1, MAX_POSITIONS)
        own = factors[_FREQUENCIES]
        longer = {"short_factor": own, "long_factor": own, "factor": 1.0, "attention_factor": 1.0}
        return made | longer | {"rope_type": "longrope", "original_max_position_embeddings": positions}
    if _SHORT in factors and kind in ("none", "longrope"):
        return made | _of_two_lengths(metadata, form, factors)
    metadata.only(f"{prefix}.scaling.attn_factor", 1.0)
    if kind == "none":
        metadata.only(f"{prefix}.scaling.factor", 0.0, 1.0)
        return made | {"rope_type": "default"}
    if kind not in ("linear", "yarn"):
        raise metadata.unsupported(f"{prefix}.scaling.type {kind!r}")
    made |= {"rope_type": kind, "factor": metadata.number(f"{prefix}.scaling.factor", 1e-3, 1e6)}
    if kind == "yarn":
        original = f"{prefix}.scaling.original_context_length"
        made["original_max_position_embeddings"] = metadata.whole(original, 1, MAX_POSITIONS)
    return made


def _of_two_lengths(metadata: Config, form: GgufForm, factors: Mapping[str, list[float]]) -> dict[str, Any]:
    """LongRoPE, whose factors are tensors of the file: of texts within the trained context, and longer."""
    prefix = f"{form.kind}.rope.scaling"
    return {
        "rope_type": "longrope",
        "short_factor": factors[_SHORT],
        "long_factor": factors.get(_LONG, factors[_SHORT]),
        "original_max_position_embeddings": metadata.whole(
            f"{prefix}.original_context_length", 1, MAX_POSITIONS
        ),
        # A file without it means 1 to llama.cpp.
        "attention_factor": metadata.number(f"{prefix}.attn_factor", 1e-3, 1e3, 1.0),
    }


def _only_known(metadata: Config, form: GgufForm) -> None:
    """Refuse what may change the outputs and is not read; what is zero or false changes nothing."""
    common = () if form.whole is not None else (*_KNOWN, *(key for key, _ in _WHOLE.values()))
    known = {f"{form.kind}.{key}" for key in (*common, *form.keys)}
    for name, value in metadata.values.items():
        if name.startswith(f"{form.kind}.") and name not in known and value not in (0, "", []):
            raise metadata.unsupported(f"metadata {name!r}")
