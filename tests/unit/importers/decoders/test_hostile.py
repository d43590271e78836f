"""Whatever stands in the files of a folder makes a description of a model, or one line of an error."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from host.errors import EdgeError
from host.importers.decoders.architectures import describe, known_architectures
from host.importers.decoders.config import Config
from host.importers.decoders.folder import read_folder
from host.importers.decoders.packed.layout import read_layout
from host.importers.decoders.safetensors_file import read_header
from tests.unit.importers.decoders.models import SIZES, llama, write

_NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
_SCALARS = st.none() | st.booleans() | _NUMBERS | st.integers(0, 70) | st.text(max_size=8)
_TEXTS = st.sampled_from(
    ["full_attention", "sliding_attention", "linear", "yarn", "llama3", "longrope", "gelu"]
)
_KEYS = st.sampled_from(
    [
        "rope_type",
        "type",
        "rope_theta",
        "factor",
        "short_factor",
        "low_freq_factor",
        "high_freq_factor",
        "beta_fast",
        "mscale",
        "original_max_position_embeddings",
        "full_attention",
        "sliding_attention",
    ]
)
_VALUES = st.recursive(
    _SCALARS | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=8,
)
_FIELDS = [
    *SIZES,
    "n_embd",
    "n_head",
    "n_layer",
    "n_inner",
    "n_positions",
    "head_dim",
    "hidden_act",
    "hidden_activation",
    "layer_types",
    "no_rope_layers",
    "no_rope_layer_interval",
    "sliding_window",
    "sliding_window_pattern",
    "use_sliding_window",
    "max_window_layers",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "rope_local_base_freq",
    "partial_rotary_factor",
    "original_max_position_embeddings",
    "query_pre_attn_scalar",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "attention_bias",
    "tie_word_embeddings",
    "quantization_config",
    "model_type",
]
_GPT = {"n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 64, "sliding_window": 8}


@settings(max_examples=500, deadline=None)
@given(
    changes=st.dictionaries(
        st.sampled_from(["quant_method", "bits", "group_size", "version", "checkpoint_format", "dynamic"]),
        _VALUES,
        max_size=4,
    ),
    method=st.sampled_from(["gptq", "awq"]),
)
def test_any_way_of_packing_is_a_layout_or_one_line(changes: dict[str, Any], method: str) -> None:
    fields = {"quant_method": method, "bits": 4, "group_size": 128, **changes}
    try:
        layout = read_layout(Config(Path("model"), {"quantization_config": fields}))
    except EdgeError as error:
        assert "\n" not in str(error) and len(str(error)) < 1000
        return
    assert layout is not None and layout.bits in (4, 8) and layout.group % 32 == 0


@settings(max_examples=500, deadline=None)
@given(
    kind=st.sampled_from(known_architectures()),
    changes=st.dictionaries(st.sampled_from(_FIELDS), _VALUES, max_size=4),
)
@example("gemma3_text", {"rope_parameters": {"full_attention": True}})
@example("gemma3_text", {"rope_parameters": {"sliding_attention": [1]}})
def test_any_fields_make_a_description_or_one_line(kind: str, changes: dict[str, Any]) -> None:
    fields = {"model_type": kind, **SIZES, **_GPT, "attn_logit_softcapping": None, **changes}
    try:
        description, weights = describe(Config(Path("model"), fields), ())
    except EdgeError as error:
        assert "\n" not in str(error) and len(str(error)) < 1000
        return
    names = [name for name, _ in weights.tensors()]
    assert len(names) == len(set(names)) <= 20 * len(description.layers) + 10
    assert all(0 < size <= 1 << 30 for _, shape in weights.tensors() for size in shape)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_a_header_or_one_line(data: bytes, measured: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        path.write_bytes(len(data).to_bytes(8, "little") + data if measured else data)
        try:
            assert read_header(path) == {}
        except EdgeError as error:
            assert "\n" not in str(error)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets"]), _VALUES, max_size=3))
def test_any_entry_of_a_header_is_a_tensor_of_the_file_or_one_line(changes: dict[str, Any]) -> None:
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}
    text = json.dumps({"a": entry}).encode()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        path.write_bytes(len(text).to_bytes(8, "little") + text + b"\0" * 8)
        try:
            tensor = read_header(path)["a"]
            assert tensor.end <= path.stat().st_size
            assert tensor.read("a").shape == tensor.shape
        except EdgeError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "model.safetensors.index.json"])
@settings(max_examples=60, deadline=None)
@given(value=_VALUES)
def test_any_json_in_a_file_is_read_or_refused(name: str, value: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), llama(), {})
        key = "weight_map" if "index" in name else "eos_token_id"
        for text in (json.dumps(value), json.dumps({**llama(), key: value})):
            (path / name).write_text(text)
            try:
                read_folder(path)
            except EdgeError as error:
                assert "\n" not in str(error)
