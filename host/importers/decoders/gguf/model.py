"""A GGUF file as the folder of transformers that it was made of: fields of config.json, names, tokenizer."""

from __future__ import annotations

import re
from pathlib import Path

from device_agent.contract.manifest import TOKENIZER
from device_agent.contract.text import printable
from host.errors import ImportFailed, ModelFileError
from host.importers.decoders.architectures import gguf_forms
from host.importers.decoders.config import MAX_HEAD_SIZE, MAX_HEADS, MAX_VOCABULARY, Config
from host.importers.decoders.folder import ModelFolder
from host.importers.decoders.gguf.chat import read_chat
from host.importers.decoders.gguf.form import GgufForm
from host.importers.decoders.gguf.header import Header, TensorPlace, read_header
from host.importers.decoders.gguf.metadata import FACTORS, as_fields
from host.importers.decoders.gguf.tensor import GgufTensor
from host.importers.decoders.gguf.tokenizer import make_tokenizer

_EMBEDDING = "token_embd.weight"
_OUTER = {
    _EMBEDDING: "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_SANDWICH = {
    "ffn_norm": "pre_feedforward_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_FUSED = {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}
_LAYER = re.compile(r"blk\.(0|[1-9]\d{0,4})\.(\w+)\.(weight|bias)")
_END_TOKENS = ("eos_token_id", "eot_token_id", "eom_token_id")


def read_gguf(path: Path) -> ModelFolder:
    """Look at a file.

    Raises:
        ModelFileError: it is damaged, or a part of a model.
        ImportFailed: the architecture, or something of it, is not known.
        OSError: it cannot be read.
    """
    header = read_header(path)
    metadata = Config(path.name, header.values, "convert the model again")
    kind, form = _form(path, metadata)
    embedding = header.tensors.get(_EMBEDDING)
    if embedding is None or len(embedding.shape) != 2 or embedding.shape[0] > MAX_VOCABULARY:
        raise metadata.error(f"tensor {_EMBEDDING} is missing, or no matrix of at most {MAX_VOCABULARY} rows")
    fields = as_fields(metadata, form, kind, embedding.shape[0], header.tensors, _factors(path, header))
    config = Config(path.name, fields, "convert the model again")
    weights = {
        _name(metadata, form, name): _tensor(path, name, place, form, config)
        for name, place in header.tensors.items()
        if name not in FACTORS
    }
    beside = path.parent / TOKENIZER
    made, reason = (None, "") if beside.is_file() else make_tokenizer(metadata)
    return ModelFolder(
        path,
        config,
        weights,
        (path,),
        beside if beside.is_file() else made,
        _end_tokens(metadata),
        exact=True,
        notes=_notes(reason),
        chat=read_chat(metadata),
    )


def _form(path: Path, metadata: Config) -> tuple[str, GgufForm]:
    """The `model_type` and the form of the architecture."""
    if metadata.whole("split.count", 0, 1 << 16, 1) > 1:
        raise ModelFileError(
            f"{path.name}: it is one of several files of a model: join them with llama-gguf-split --merge"
        )
    metadata.only("general.type", "model")
    kind = metadata.text("general.architecture", 100)
    for model_type, form in gguf_forms().items():
        if form.kind == kind:
            return model_type, form
    known = ", ".join(sorted(form.kind for form in gguf_forms().values()))
    raise ImportFailed(
        f"{path.name}: architecture {printable(kind, 60)!r} is not read from GGUF files, {known} are: "
        "give the folder of transformers that it was made of",
        kind,
    )


def _name(metadata: Config, form: GgufForm, name: str) -> str:
    """The name of a tensor in transformers."""
    outer = form.outer or _OUTER
    if name in outer:
        return outer[name]
    found = _LAYER.fullmatch(name)
    common = {**_INNER, **(_SANDWICH if form.sandwich else {}), **(_FUSED if form.fused else {})}
    inner = form.inner or common
    if found is None or found[2] not in inner:
        raise metadata.unsupported(f"tensor {name!r}")
    return f"{form.layers}.{found[1]}.{inner[found[2]]}.{found[3]}"


def _tensor(path: Path, name: str, place: TensorPlace, form: GgufForm, config: Config) -> GgufTensor:
    heads = 0
    if form.interleaved and ".attn_q." in name:
        heads = config.whole("num_attention_heads", 1, MAX_HEADS)
    elif form.interleaved and ".attn_k." in name:
        heads = config.whole("num_key_value_heads", 1, MAX_HEADS)
    size = config.whole("head_dim", 1, MAX_HEAD_SIZE) if heads else 0
    if heads and (size % 2 or place.shape[0] != heads * size):
        raise config.error(f"tensor {printable(name, 100)!r} has {place.shape[0]} rows for {heads} heads")
    offset = form.norm_offset if name.endswith("norm.weight") else 0.0
    layer = _LAYER.fullmatch(name)
    transposed = layer is not None and form.inner.get(layer[2]) in form.transposed and len(place.shape) == 2
    shape = place.shape[::-1] if transposed else place.shape
    return GgufTensor(path, place.dtype, shape, place.begin, place.end, heads, offset, transposed)


def _factors(path: Path, header: Header) -> dict[str, list[float]]:
    """What the frequencies of the rotation are divided by, by the name of the tensor."""
    found = {}
    for name in FACTORS:
        place = header.tensors.get(name)
        if place is None:
            continue
        if place.dtype != "F32" or len(place.shape) != 1 or place.shape[0] > MAX_HEAD_SIZE:
            raise ModelFileError(f"{path.name}: {name} is no short vector of F32: convert the model again")
        tensor = GgufTensor(path, place.dtype, place.shape, place.begin, place.end)
        found[name] = [float(one) for one in tensor.read(name)]
    return found


def _end_tokens(metadata: Config) -> tuple[int, ...]:
    names = [f"tokenizer.ggml.{name}" for name in _END_TOKENS]
    found = [metadata.whole(name, 0, 2**32 - 1) for name in names if metadata.has(name)]
    return tuple(dict.fromkeys(found))


def _notes(reason: str) -> tuple[str, ...]:
    """Lines about what is not as in the file."""
    if not reason:
        return ()
    return (
        f"The bundle has no tokenizer: {reason}. Put the model's tokenizer.json beside the file, or give "
        "prompts as numbers of tokens.",
    )
