"""A transformers folder as a GGUF file, and back: Llama, Mistral, Qwen2 and Qwen3.

For the environment of llama.cpp: standard library, NumPy and `gguf`. Sources: the documents of GGUF in
llama.cpp's repository (docs/gguf.md of ggml), and the names of `gguf.constants`.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping

import numpy as np

_WEIGHTS = "model.safetensors"
_FULL = 32
_ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
_TYPES: Dict[str, Any] = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}
# Per layer: name in GGUF, name in transformers.
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_BIASES = ("attn_q", "attn_k", "attn_v")
_HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}


@dataclass(frozen=True)
class Source:
    """The source of a tensor of a GGUF file.

    Attributes:
        name: of the weight in transformers.
        heads: whose rows stand in another order; 0 where all stay as they are.
    """

    name: str
    heads: int = 0


def sources_of(config: Mapping[str, Any]) -> dict[str, Source]:
    """The tensors of the GGUF file of a model.

    Args:
        config: its config.json.
    """
    kind = config["model_type"]
    found = {"token_embd": Source("model.embed_tokens.weight"), "output_norm": Source("model.norm.weight")}
    if not config.get("tie_word_embeddings", False):
        found["output"] = Source("lm_head.weight")
    # In the files of Llama, the pairs that are rotated stand beside each other; in those of Qwen3, half a
    # head apart, as in transformers.
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    swapped = heads if _ARCHITECTURES[kind] == "llama" else {}
    layer = {**_LAYER, **(_HEAD_NORMS if kind == "qwen3" else {})}
    biases: Dict[str, Source] = {}
    for number in range(config["num_hidden_layers"]):
        for ours, theirs in layer.items():
            name = f"model.layers.{number}.{theirs}.weight"
            found[f"blk.{number}.{ours}"] = Source(name, swapped.get(ours, 0))
        for ours in _BIASES if kind == "qwen2" else ():
            biases[f"blk.{number}.{ours}.bias"] = Source(f"model.layers.{number}.{_LAYER[ours]}.bias")
    return {**{f"{name}.weight": source for name, source in found.items()}, **biases}


def interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of queries or keys, with elements i and i + n/2 of a head beside each other."""
    return weight.reshape(heads, 2, -1, weight.shape[-1]).swapaxes(1, 2).reshape(weight.shape)


def halved(weight: np.ndarray, heads: int) -> np.ndarray:
    """The reverse of `interleaved`: elements i and i + n/2 of a head lie half a head apart again."""
    return weight.reshape(heads, -1, 2, weight.shape[-1]).swapaxes(1, 2).reshape(weight.shape)


class Weights(Mapping[str, np.ndarray]):
    """The tensors of a folder's safetensors files, each read in float32 when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self._places: Dict[str, Any] = {}
        for path in sorted(folder.glob("*.safetensors")):
            with path.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            for name, entry in header.items():
                self._places[name] = path, 8 + length + entry["data_offsets"][0], entry

    def __getitem__(self, name: str) -> np.ndarray:
        path, begin, entry = self._places[name]
        kind = entry["dtype"]
        if kind not in _TYPES:
            raise ValueError(f"{name} has type {kind}, none of {', '.join(_TYPES)}")
        stored = np.memmap(path, _TYPES[kind], "r", begin, tuple(entry["shape"]))
        if kind == "BF16":
            return (stored.astype(np.uint32) << 16).view(np.float32)
        return stored if kind == "F32" else stored.astype(np.float32)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def write_gguf(folder: Path, path: Path, bits: int) -> None:
    """Write a model with all of its matrices in one format: Q4_0, Q8_0, F16 or F32.

    Args:
        folder: of the model.
        path: of the file to write.
        bits: of a weight: 4, 8, 16 or 32.

    Raises:
        ValueError: the model has what is not written here.
    """
    import gguf

    config = json.loads((folder / "config.json").read_text())
    _check(config)
    name_of_type = {4: "Q4_0", 8: "Q8_0", 16: "F16", 32: "F32"}[bits]
    kind = gguf.GGMLQuantizationType[name_of_type]
    writer = gguf.GGUFWriter(path, _ARCHITECTURES[config["model_type"]])
    _describe(writer, config)
    file_type = "ALL_F32" if bits == _FULL else f"MOSTLY_{name_of_type}"
    writer.add_file_type(gguf.LlamaFileType[file_type])
    weights = Weights(folder)
    for name, source in sources_of(config).items():
        values = np.asarray(weights[source.name])
        if source.heads:
            values = interleaved(values, source.heads)
        if values.ndim == 1:
            writer.add_tensor(name, np.array(values))
        else:
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _check(config: Mapping[str, Any]) -> None:
    """Refuse a model whose file would be another model."""
    kind = config.get("model_type")
    refused = {
        f"the architecture {kind}": kind not in _ARCHITECTURES,
        "scaled rotary embeddings": _rotary(config).get("rope_type", "default") != "default",
        "sliding windows": bool(config.get("sliding_window")) and config.get("use_sliding_window", True),
        "biases": bool(config.get("attention_bias") or config.get("mlp_bias")),
    }
    for what, has in refused.items():
        if has:
            raise ValueError(f"no GGUF file is written of {what}")


def _rotary(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The field of the rotary embedding, as transformers has it from version 5 on."""
    given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return {"rope_theta": config.get("rope_theta", 10000.0), **given}


def _describe(writer: Any, config: Mapping[str, Any]) -> None:
    """The fields that llama.cpp needs; there is no tokenizer."""
    head_size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head_size)
    writer.add_value_length(head_size)
    writer.add_rope_dimension_count(head_size)
    writer.add_rope_freq_base(_rotary(config)["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("none")


def original_of(path: Path, model: Path, folder: Path) -> None:
    """Write the model that a GGUF file holds as a transformers folder, its values as float32.

    Args:
        path: of the file.
        model: folder that it was made of, for the configuration.
        folder: to write.

    Raises:
        ValueError: the file does not have the tensors of the model.
    """
    import gguf

    config = json.loads((model / "config.json").read_text())
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    sources = sources_of(config)
    if tensors.keys() != sources.keys():
        raise ValueError(f"{path.name} differs in {sorted(tensors.keys() ^ sources.keys())}")
    header, offset = {}, 0
    for name, source in sources.items():
        # GGUF names the fastest dimension first.
        shape = [int(size) for size in reversed(tensors[name].shape)]
        end = offset + 4 * int(np.prod(shape))
        header[source.name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _WEIGHTS).open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, source in sources.items():
            values = gguf.quants.dequantize(tensors[name].data, tensors[name].tensor_type)
            values = halved(values, source.heads) if source.heads else values
            file.write(np.ascontiguousarray(values, np.float32).tobytes())
    shutil.copy(model / "config.json", folder / "config.json")
