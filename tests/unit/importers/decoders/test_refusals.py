"""What a configuration asks for and the compiler does not have is refused by name."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from device_agent.contract.limits import LIMITS
from host.errors import EdgeError, ImportFailed, ModelFileError, ShapeError, UserError
from host.importers import load, load_here
from host.importers.decoders import constants
from host.importers.decoders.architectures import describe, known_architectures
from host.importers.decoders.config import Config
from host.importers.decoders.folder import read_folder
from host.importers.decoders.importer import import_decoder
from tests.unit.importers.decoders.models import SIZES, llama, llama_weights, write


def read(kind: str = "llama", **fields: Any) -> Any:
    return describe(Config(Path("model"), {"model_type": kind, **SIZES, **fields}), ())


def refused(error: type[EdgeError], *words: str, kind: str = "llama", **fields: Any) -> None:
    with pytest.raises(error) as caught:
        read(kind, **fields)
    text = str(caught.value)
    assert type(caught.value) is error and "\n" not in text
    assert all(word in text for word in words), text


def test_an_architecture_that_is_not_known() -> None:
    refused(ImportFailed, "architecture 'mamba' is not known", *known_architectures(), kind="mamba")
    with pytest.raises(ImportFailed) as error:
        read("\x1b[2J\n")
    assert "\x1b" not in str(error.value) and "\n" not in str(error.value)
    refused(ModelFileError, "model_type", kind=3)  # type: ignore[arg-type]
    assert {"llama", "qwen2", "qwen3", "mistral", "phi3", "gemma3_text", "gpt2"} <= set(known_architectures())


@pytest.mark.parametrize(
    ("kind", "fields", "word"),
    [
        ("llama", {"quantization_config": {"bits": 4}}, "quantization_config"),
        ("llama", {"hidden_act": "xielu"}, "xielu"),
        ("llama", {"rope_scaling": {"type": "ntk", "factor": 2.0}}, "rotary embedding 'ntk'"),
        ("qwen2", {"rope_scaling": {"type": "default", "mrope_section": [1, 2]}}, "mrope_section"),
        ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "odd": 1}}, "'odd'"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ("llama", {"head_dim": 15}, "a rotation of 15 elements"),
        (
            "qwen2",
            {"use_sliding_window": True, "layer_types": ["chunked_attention"] * 2},
            "chunked_attention",
        ),
        ("qwen2", {"layer_types": ["sliding_attention"] * 2, "sliding_window": 8}, "use_sliding_window"),
        ("mistral", {"layer_types": ["full_attention"] * 2}, "layer_types"),
        ("gemma", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("smollm3", {"layer_types": ["sliding_attention"] * 2, "sliding_window": 8}, "use_sliding_window"),
        ("gemma3_text", {"attn_logit_softcapping": 50.0, "sliding_window": 8}, "attn_logit_softcapping"),
        ("gemma3_text", {"sliding_window": 8, "rope_parameters": {"rope_type": "linear"}}, "rope_parameters"),
        (
            "gpt2",
            {"n_layer": 2, "n_embd": 64, "n_head": 4, "n_positions": 64, "add_cross_attention": True},
            "cross",
        ),
    ],
)
def test_what_is_not_supported(kind: str, fields: dict[str, Any], word: str) -> None:
    refused(ImportFailed, word, "is not supported", kind=kind, **fields)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_hidden_layers", 100000),
        ("num_hidden_layers", 0),
        ("num_hidden_layers", True),
        ("hidden_size", 1 << 40),
        ("hidden_size", "64"),
        ("hidden_size", 63),
        ("vocab_size", 1 << 60),
        ("intermediate_size", -1),
        ("num_attention_heads", None),
        ("num_key_value_heads", 3),
        ("max_position_embeddings", 0),
        ("head_dim", 4096),
        ("rms_norm_eps", "x"),
        ("tie_word_embeddings", "yes"),
        ("rope_parameters", []),
        ("rope_parameters", {"rope_theta": 0.0}),
        ("rope_parameters", {"rope_type": "linear"}),
        ("rope_parameters", {"rope_type": "linear", "factor": -1.0}),
        ("rope_parameters", {"rope_type": ["linear"]}),
        (
            "rope_parameters",
            {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 2.0, "high_freq_factor": 2.0},
        ),
        ("rope_parameters", {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}),
    ],
)
def test_fields_that_are_out_of_range(field: str, value: Any) -> None:
    with pytest.raises(ModelFileError) as error:
        read(**{field: value})
    assert "config.json" in str(error.value) and "\n" not in str(error.value)


def test_layer_types_and_windows_belong_to_the_layers() -> None:
    given = {"kind": "qwen2", "use_sliding_window": True}
    refused(ModelFileError, "layer_types has 1 entries for 2", layer_types=["full_attention"], **given)
    refused(
        ModelFileError, "sliding_window", layer_types=["sliding_attention"] * 2, sliding_window=0, **given
    )


@pytest.mark.parametrize("given", [[1], [1, 2], [1, "0"], [1, [0]]])
def test_layers_without_a_rotation_are_named_by_a_zero_each(given: list[Any]) -> None:
    refused(ModelFileError, "no_rope_layers", "0 and 1 for 2 layers", kind="smollm3", no_rope_layers=given)


def spoiled(tmp_path: Path, name: str, values: np.ndarray | None) -> Path:
    weights = llama_weights()
    if values is None:
        del weights[name]
    else:
        weights[name] = values
    return write(tmp_path, llama(), weights)


@pytest.mark.parametrize("values", [None, np.zeros((64, 32), np.float32), np.zeros((4096,), np.float32)])
def test_a_weight_that_is_missing_or_of_another_shape(values: np.ndarray | None, tmp_path: Path) -> None:
    name = "model.layers.1.self_attn.o_proj.weight"
    shape = r"\[64, 64\] is missing" if values is None else rf"has shape .*{values.shape[0]}.*\[64, 64\]"
    with pytest.raises(ModelFileError, match=f"{name}' {shape}"):
        import_decoder(spoiled(tmp_path, name, values), 32, 8)


def test_weights_that_cannot_be_used(tmp_path: Path) -> None:
    name = "model.layers.0.mlp.up_proj.weight"
    huge = np.full((96, 64), 1e30, np.float32)
    with pytest.raises(ModelFileError, match=f"{name}' cannot be quantised: .*without --quantize"):
        import_decoder(spoiled(tmp_path, name, huge), 32, 8, "int8")
    with pytest.raises(ModelFileError, match=f"{name}' holds NaN"):
        import_decoder(spoiled(tmp_path, name, huge * np.nan), 32, 8)
    for dtype, words in ((np.float64, "give the model in one of them"), (np.int8, "before it was quantised")):
        with pytest.raises(ModelFileError, match=words):
            import_decoder(spoiled(tmp_path, name, np.ones((96, 64), dtype)), 32, 8)


@pytest.mark.parametrize(
    ("context", "chunk", "words"),
    [
        (80, 8, "the model has 64 positions: give at most 64"),
        (40, 8, "multiple of 16"),
        (0, 1, "multiple of 16"),
        (32, 33, "a chunk of 33 tokens: give 1 to 32"),
        (32, 0, "a chunk of 0 tokens"),
    ],
)
def test_a_context_that_does_not_fit(context: int, chunk: int, words: str, tmp_path: Path) -> None:
    write(tmp_path, llama(), llama_weights())
    with pytest.raises(ShapeError, match=words):
        import_decoder(tmp_path, context, chunk)


@pytest.mark.parametrize("long_chunk", [8, 12, 24, 32, -16])
def test_a_long_chunk_that_does_not_fit(long_chunk: int, tmp_path: Path) -> None:
    """No longer than the other one, no multiple of it, or more than a quarter of the context."""
    write(tmp_path, llama(), llama_weights())
    with pytest.raises(
        ShapeError, match=f"a long chunk of {long_chunk} tokens: give a multiple of 8 above it"
    ):
        import_decoder(tmp_path, 64, 8, long_chunk=long_chunk)


def test_a_model_of_fewer_positions_than_a_context_has(tmp_path: Path) -> None:
    write(tmp_path, llama(max_position_embeddings=15), llama_weights())
    for context in (0, 16):
        with pytest.raises(ShapeError, match="has 15 positions, a context has 16 at least"):
            import_decoder(tmp_path, context, 8)


def test_a_state_or_weights_that_no_device_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, llama(max_position_embeddings=1 << 27), llama_weights())
    with pytest.raises(ShapeError, match=r"the state of .* takes more than 16 GiB"):
        import_decoder(tmp_path, 1 << 27, 8)
    folder = read_folder(tmp_path)
    _, weights = describe(folder.config, folder.weights)
    elements = sum(tensor.end - tensor.begin for tensor in folder.weights.values()) // 4
    for bits, by_element in ((0, 4.0), (8, 1 + 2 / 32), (4, 0.5 + 2 / 32)):
        for limit, fits in ((1.1, True), (0.9, False)):
            bundle = LIMITS.bundle._replace(file_bytes=int(elements * by_element * limit))
            monkeypatch.setattr(constants, "LIMITS", LIMITS._replace(bundle=bundle))
            with nullcontext() if fits else pytest.raises(ModelFileError, match="a bundle holds at most"):
                constants.check_bytes(folder, weights, bits)


def test_a_way_of_quantising_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--quantize int3: use one of int8, int4"):
        import_decoder(tmp_path, 32, 8, "int3")


def test_the_other_importers_say_what_a_folder_needs(tmp_path: Path) -> None:
    write(tmp_path, llama(), None)
    for reader in (load, load_here):
        with pytest.raises(ModelFileError, match="give --context"):
            reader(tmp_path)
