"""GGUF files, written by hand: metadata, tensors, and models of transformers as llama.cpp converts them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

TYPES = {
    "F32": 0,
    "F16": 1,
    "Q4_0": 2,
    "Q4_1": 3,
    "Q5_0": 6,
    "Q5_1": 7,
    "Q8_0": 8,
    "Q4_K": 12,
    "Q5_K": 13,
    "Q6_K": 14,
}
_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "self_attn.qkv_proj": "attn_qkv",
    "mlp.gate_up_proj": "ffn_up",
}
_GPT2 = {
    "transformer.wte": "token_embd",
    "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm",
    "lm_head": "output",
    "ln_1": "attn_norm",
    "ln_2": "ffn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
_GEMMA = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


class Stored(NamedTuple):
    """A tensor of a file."""

    kind: str
    shape: tuple[int, ...]
    data: bytes


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def value_of(value: Any) -> tuple[int, bytes]:
    """Type and bytes of a value of metadata."""
    if isinstance(value, bool):
        return 7, struct.pack("<B", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    if isinstance(value, str):
        return 8, text(value)
    kinds = [value_of(one) for one in value]
    return 9, struct.pack("<IQ", kinds[0][0] if kinds else 4, len(kinds)) + b"".join(
        data for _, data in kinds
    )


def write_gguf(
    path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, Stored], alignment: int = 32
) -> Path:
    """A file of version 3."""
    head, data = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)), b""
    for name, value in metadata.items():
        kind, stored = value_of(value)
        head += text(name) + struct.pack("<I", kind) + stored
    for name, tensor in tensors.items():
        head += text(name) + struct.pack("<I", len(tensor.shape))
        head += b"".join(struct.pack("<Q", size) for size in tensor.shape[::-1])
        head += struct.pack("<IQ", TYPES.get(tensor.kind, 999), len(data))
        data += tensor.data + bytes(-len(tensor.data) % alignment)
    path.write_bytes(head + bytes(-len(head) % alignment) + data)
    return path


def stored(values: np.ndarray, kind: str = "F32") -> Stored:
    """Values as a tensor of a type; of K types, random blocks of about that size."""
    rows = np.asarray(values, np.float32)
    if kind in ("F32", "F16"):
        return Stored(kind, rows.shape, rows.astype({"F32": "<f4", "F16": "<f2"}[kind]).tobytes())
    if kind.endswith("_K"):
        return Stored(kind, rows.shape, k_blocks(kind, rows.size // 256))
    groups = rows.reshape(-1, 32)
    if kind.endswith("_1"):
        return Stored(kind, rows.shape, _with_minima(groups, kind).tobytes())
    most = {"Q8_0": 127, "Q5_0": -16, "Q4_0": -8}[kind]
    place = np.abs(groups).argmax(axis=1)[:, None]
    scales = (np.take_along_axis(groups, place, axis=1) / most).astype(np.float16)
    wide = scales.astype(np.float32)
    numbers = np.rint(np.divide(groups, wide, out=np.zeros_like(groups), where=wide != 0))
    numbers = numbers.clip(-abs(most), abs(most) - (most < 0)).astype(np.int16)
    parts = [scales.view(np.uint8)]
    if kind == "Q8_0":
        parts.append(numbers.astype(np.int8).view(np.uint8))
    else:
        whole = (numbers + abs(most)).astype(np.uint8)
        if kind == "Q5_0":
            parts.append(np.packbits(whole >> 4, axis=1, bitorder="little"))
        parts.append(whole[:, :16] & 15 | (whole[:, 16:] & 15) << 4)
    return Stored(kind, rows.shape, np.concatenate(parts, axis=1).tobytes())


def _with_minima(groups: np.ndarray, kind: str) -> np.ndarray:
    """Groups as blocks of Q4_1 or Q5_1."""
    most = {"Q4_1": 15, "Q5_1": 31}[kind]
    least = groups.min(axis=1, keepdims=True).astype(np.float16)
    scales = ((groups.max(axis=1, keepdims=True) - least.astype(np.float32)) / most).astype(np.float16)
    numbers = np.rint((groups - least.astype(np.float32)) / np.maximum(scales.astype(np.float32), 1e-9))
    whole = numbers.clip(0, most).astype(np.uint8)
    fifth = [np.packbits(whole >> 4, axis=1, bitorder="little")] if kind == "Q5_1" else []
    parts = [
        scales.view(np.uint8),
        least.view(np.uint8),
        *fifth,
        whole[:, :16] & 15 | (whole[:, 16:] & 15) << 4,
    ]
    return np.concatenate(parts, axis=1)


def k_blocks(kind: str, count: int) -> bytes:
    """Random blocks whose values are some tenths."""
    size = {"Q4_K": 144, "Q5_K": 176, "Q6_K": 210}[kind]
    blocks = np.random.default_rng(count).integers(0, 256, (count, size), dtype=np.uint8)
    if kind == "Q6_K":
        blocks[:, 208:] = np.full((count, 1), 1e-4, np.float16).view(np.uint8)
    else:
        blocks[:, :4] = np.array([[3e-4, 2e-3]], np.float16).view(np.uint8)
    return blocks.tobytes()


def metadata_of(kind: str, config: Any) -> dict[str, Any]:
    """Metadata of a model of transformers."""
    if kind == "gpt2":
        sizes = {
            "block_count": config.n_layer,
            "context_length": config.n_positions,
            "embedding_length": config.n_embd,
            "feed_forward_length": config.n_inner or 4 * config.n_embd,
            "attention.head_count": config.n_head,
            "attention.layer_norm_epsilon": float(config.layer_norm_epsilon),
        }
        return {"general.architecture": kind, **{f"{kind}.{name}": value for name, value in sizes.items()}}
    theta = (config.rope_parameters.get("full_attention") or config.rope_parameters)["rope_theta"]
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    found = {
        "vocab_size": config.vocab_size,
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": size,
        "attention.value_length": size,
        "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        "rope.dimension_count": size,
        "rope.freq_base": float(theta),
    }
    if kind == "gemma2":
        found["attn_logit_softcapping"] = float(config.attn_logit_softcapping)
        found["final_logit_softcapping"] = float(config.final_logit_softcapping)
    if kind in ("gemma2", "gemma3"):
        found["attention.sliding_window"] = config.sliding_window
    if kind == "phi3":
        found["attention.sliding_window"] = config.sliding_window or 0
        found["rope.dimension_count"] = int(size * config.rope_parameters.get("partial_rotary_factor", 1.0))
    return {"general.architecture": kind, **{f"{kind}.{name}": value for name, value in found.items()}}


def tensors_of(kind: str, model: Any, types: Mapping[str, str] | None = None) -> dict[str, Stored]:
    """Tensors of a model of transformers.

    Args:
        kind: of the architecture in GGUF files.
        model: of transformers.
        types: of matrices by a part of their names there; F32 for others.
    """
    names = {**_NAMES, **(_GEMMA if kind in ("gemma2", "gemma3") else {}), **_GPT2}
    config = model.config
    heads = {"attn_q": config.num_attention_heads, "attn_k": getattr(config, "num_key_value_heads", 0)}
    found = {}
    for full, parameter in model.named_parameters():
        name, _, end = full.rpartition(".")
        values = parameter.detach().numpy()
        layer = ""
        if name.startswith("model.layers."):
            _, _, number, name = name.split(".", 3)
            layer = f"blk.{number}."
        elif name.startswith("transformer.h."):
            _, _, number, name = name.split(".", 3)
            layer = f"blk.{number}."
            # The converter turns the matrices of Conv1D round.
            values = np.ascontiguousarray(values.T)
        name = names[name]
        if kind in ("llama", "smollm3") and name in heads:
            halves = values.reshape(heads[name], 2, -1, *values.shape[1:])
            values = halves.swapaxes(1, 2).reshape(values.shape)
        if kind.startswith("gemma") and name.endswith("norm"):
            values = values + np.float32(1)
        chosen = [one for part, one in (types or {}).items() if part in f"{layer}{name}"]
        found[f"{layer}{name}.{end}"] = stored(values, chosen[0] if chosen and values.ndim == 2 else "F32")
    return found
