"""A GGUF file computes what the model computes that it was made of, and keeps the values of its weights."""

from __future__ import annotations

import math
from collections import Counter
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax

from host.errors import EdgeError, UserError
from host.importers.decoders.gguf.model import read_gguf
from host.importers.decoders.gguf.tensor import GgufTensor
from host.importers.decoders.importer import ModelSizes, import_decoder, sizes_of
from host.importers.decoders.quantise import dequantise
from host.importers.decoders.reference import model as streamed
from host.importers.decoders.reference.child import logits_of
from host.importers.decoders.reference.model import make_model
from host.importers.dispatch import load_here
from host.importers.worker.parent import load
from host.model.text_quality import FILE
from host.model_file import detect_format
from host.options import CompileOptions
from host.options.of_model import check_for_model
from tests.decoders.operations import Machine, empty_state
from tests.gguf_file import Stored, metadata_of, stored, tensors_of, write_gguf
from tests.tiny_tokenizer import write_tokenizer
from tests.unit.importers.decoders.models import save
from tests.unit.importers.decoders.references import LLAMA3, place_and_run

LONG = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.1, 1.3, 1.5, 1.7, 2.0, 2.4, 3.0],
    "long_factor": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
    "original_max_position_embeddings": 64,
}
LONG_POSITIONS = {"max_position_embeddings": 128, "original_max_position_embeddings": 64}
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("llama", "llama", {}),
    "llama-biased": ("llama", "llama", {"attention_bias": True, "tie_word_embeddings": True}),
    "llama-3": ("llama", "llama", {"rope_parameters": LLAMA3}),
    "qwen2": ("qwen2", "qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", "qwen3", {"head_dim": 32}),
    "smollm3": ("smollm3", "smollm3", {"num_hidden_layers": 5, "pad_token_id": 0}),
    "phi3": ("phi3", "phi3", {"sliding_window": 9, "partial_rotary_factor": 0.75, "pad_token_id": 0}),
    "phi3-long": ("phi3", "phi3", {"rope_parameters": LONG, "pad_token_id": 0, **LONG_POSITIONS}),
    "gpt2": ("gpt2", "gpt2", {}),
    "gpt2-untied": ("gpt2", "gpt2", {"tie_word_embeddings": False, "n_inner": 96}),
    "gemma": ("gemma", "gemma", {"head_dim": 16}),
    "gemma2": (
        "gemma2",
        "gemma2",
        {
            "head_dim": 16,
            "sliding_window": 9,
            "query_pre_attn_scalar": 16,
            "attn_logit_softcapping": 0.5,
            "final_logit_softcapping": 20.0,
        },
    ),
    "gemma3": (
        "gemma3",
        "gemma3_text",
        {"head_dim": 16, "sliding_window": 9, "num_hidden_layers": 7, "query_pre_attn_scalar": 16},
    ),
}
# As the converter of llama.cpp writes the factor of LongRoPE: of the whole context over that of the training.
LONG_SCALE = (1 + np.log(2) / np.log(64)) ** 0.5
TOKENS = np.random.default_rng(1).integers(0, 128, 40).tolist()


def made(folder: Path, name: str, types: dict[str, str] | None = None) -> tuple[Path, Any]:
    """A file of a model, and the model."""
    kind, model_type, fields = MODELS[name]
    model = save(folder / "folder", model_type, **fields)
    tensors = tensors_of(kind, model, types)
    if name == "llama-3":
        inverse = model.model.rotary_emb.inv_freq.numpy()
        plain = LLAMA3["rope_theta"] ** -(np.arange(0, 16, 2) / 16)
        tensors["rope_freqs.weight"] = stored(plain / inverse)
    values = metadata_of(kind, model.config)
    if name == "phi3-long":
        for length in ("short", "long"):
            factors = np.array(LONG[f"{length}_factor"], np.float32)
            tensors[f"rope_factors_{length}.weight"] = stored(factors)
        values["phi3.rope.scaling.original_context_length"] = 64
        values["phi3.rope.scaling.attn_factor"] = float(LONG_SCALE)
    return write_gguf(folder / "tiny.gguf", values, tensors), model


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_the_model(name: str, tmp_path: Path) -> None:
    path, model = made(tmp_path, name)
    wanted = place_and_run(model, TOKENS, ())
    found = logits_of(make_model(read_gguf(path), {}), TOKENS)
    assert np.abs(found - wanted).max() < 1e-4 * np.abs(wanted).max()
    imported = import_decoder(path, 48, 8)
    assert (imported.name, imported.format, imported.path) == ("tiny", "gguf", path)
    assert {spec.dtype for spec in imported.state} == {"float32"}
    machine = Machine(imported.module, empty_state(imported.state))
    for place, token in enumerate(TOKENS):
        step = machine.run(np.array([token], np.int32), np.array([place], np.int32))
        assert np.abs(step[0] - wanted[place]).max() < 1e-4 * np.abs(wanted).max()


def test_a_pass_reads_no_weight_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = made(tmp_path, "llama")
    # Every matrix has more than a block; those of queries and keys have their rows in another order.
    monkeypatch.setattr(streamed, "_BLOCK", 64)
    read, count = GgufTensor.read, Counter[str]()

    def counted(self: GgufTensor, name: str) -> np.ndarray:
        count[name] += math.prod(self.shape)
        return read(self, name)

    monkeypatch.setattr(GgufTensor, "read", counted)
    logits_of(make_model(read_gguf(path), {}), TOKENS)
    sizes = {name: math.prod(one.shape) for name, one in read_gguf(path).weights.items()}
    assert set(count) == set(sizes) and all(count[name] <= size for name, size in sizes.items())


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
@pytest.mark.parametrize("name", ["llama", "qwen2", "phi3", "gpt2"])
def test_weights_of_whole_numbers_are_kept(name: str, kind: str, tmp_path: Path) -> None:
    path, model = made(tmp_path, name, {"": kind})
    read = read_gguf(path)
    assert detect_format(path) == "gguf" and not read.notes[:-1]
    matrices = [key for key, tensor in read.weights.items() if len(tensor.shape) == 2]
    assert len(matrices) > (9 if name in ("phi3", "gpt2") else 14)
    parameters = dict(model.named_parameters())
    for key in matrices:
        tensor = read.weights[key]
        values = tensor.read(key)
        stored_form = tensor.form
        assert stored_form is not None and stored_form.bits == (4 if kind[:2] == "Q4" else 8)
        assert tensor.quantised(key, stored_form.bits).form == stored_form
        own = parameters[key].detach().numpy()
        assert isinstance(tensor, GgufTensor)
        kept = dequantise(tensor.quantised(key, stored_form))
        assert ((kept.T if tensor.transposed else kept) == values).all()
        # As far as the type can hold the model's own values, in the model's own order.
        assert np.abs(values - own).max() <= np.abs(own).max() / {"Q8_0": 200, "Q5_1": 15, "Q5_0": 15}.get(
            kind, 7
        )


def test_a_quantised_file_is_deployed_as_it_is(tmp_path: Path) -> None:
    types = {"token_embd": "Q8_0", "attn_q": "Q4_0", "attn_k": "Q8_0", "ffn": "Q4_0", "output": "F16"}
    path, _ = made(tmp_path, "llama", types)
    lines: list[str] = []
    words = tmp_path / "words.txt"
    words.write_text("one two three four " * 6)
    with pytest.raises(UserError, match=r"has no tokenizer: put its tokenizer\.json beside it"):
        import_decoder(path, 32, 8, text=words)
    write_tokenizer(tmp_path / "tokenizer.json")
    judged = import_decoder(path, 32, 8, text=words).text
    # Nobody knows what the weights were before they were quantised.
    assert judged is not None and (judged.baseline, judged.weights_divergence) == (FILE, 0.0)
    assert len(judged.logits) == 24 and len(judged.greedy) == 16
    (tmp_path / "tokenizer.json").unlink()
    imported = import_decoder(path, 32, 8, notice=lines.append)
    assert {spec.dtype for spec in imported.state} == {"float16"}
    # How much prompts may round depends on the random numbers.
    told = [line for line in lines if "round" not in line]
    assert imported.golden[0].spread > 0 and len(told) == 1 and "no tokenizer" in told[0]
    machine = Machine(imported.module, empty_state(imported.state))
    for case in takewhile(lambda one: not one.function, imported.golden):
        step, wanted = machine.run(*case.inputs), case.outputs[0]
        # Keys and values are in half precision.
        assert np.abs(step - wanted).max() < 5e-3 * np.abs(wanted).max()
    with pytest.raises(UserError, match=r"--quantize int8: .* is quantised already: leave --quantize out"):
        import_decoder(path, 32, 8, "int8")
    with pytest.raises(UserError, match=r"--dtype fp16: .* is quantised: leave --dtype out"):
        import_decoder(path, 32, 8, half=True)


def test_a_file_in_floating_point_can_be_quantised(tmp_path: Path) -> None:
    path, _ = made(tmp_path, "qwen2", {"": "F16"})
    imported = import_decoder(path, 32, 8, "int4")
    assert {spec.dtype for spec in imported.state} == {"float16"}
    assert sizes_of(path) == ModelSizes(positions=64, hidden=64, quantised=False)


def test_types_of_superblocks_and_minima_are_deployed_as_they_are(tmp_path: Path) -> None:
    sizes = {"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1}
    model = save(tmp_path / "folder", "llama", **sizes)
    # Queries, keys and values are one product of three forms, and a part of another one stays in float32.
    types = {
        "token_embd": "Q4_K",
        "attn_q": "Q4_K",
        "attn_k": "Q4_1",
        "attn_v": "Q6_K",
        "attn_output": "Q5_1",
        "ffn_down": "Q5_K",
        "ffn_gate": "Q4_K",
        "output": "Q6_K",
    }
    tensors = tensors_of("llama", model, types)
    path = write_gguf(tmp_path / "tiny.gguf", metadata_of("llama", model.config), tensors)
    read = read_gguf(path)
    forms = {key: one.form for key, one in read.weights.items() if one.form is not None}
    assert len(forms) == 8 and len(set(forms.values())) == 5
    assert not any("rounded" in line for line in read.notes)
    imported = import_decoder(path, 32, 8)
    held = sum(one.nbytes for one in constants_of(imported.module))
    shapes = {key: read.weights[key].shape for key in forms}
    whole = sum(form.bytes_of(*shapes[key]) for key, form in forms.items())
    assert whole < held < whole + 256 * 256 * 4 + (3 * 256 + 2 * 32 * 128 + 64) * 4
    machine = Machine(imported.module, empty_state(imported.state))
    for case in imported.golden[:8]:
        wanted = case.outputs[0]
        # Keys and values are in half precision.
        assert np.abs(machine.run(*case.inputs) - wanted).max() < 5e-3 * np.abs(wanted).max()


def constants_of(module: Any) -> list[np.ndarray]:
    """The constants of a module, each once."""
    found: dict[int, np.ndarray] = {}
    kind = type(relax.const(0))

    def visit(expression: Any) -> None:
        if isinstance(expression, kind):
            array = np.from_dlpack(expression.value)
            found[array.__array_interface__["data"][0]] = array

    relax.analysis.post_order_visit(module["main"], visit)
    return list(found.values())


def test_options_of_language_models_go_with_a_file(tmp_path: Path) -> None:
    path, other = tmp_path / "a.gguf", tmp_path / "a.onnx"
    path.write_bytes(b"GGUF")
    other.write_bytes(b"\x08")
    options = CompileOptions(context_tokens=32)
    check_for_model(options, path, "gguf")
    with pytest.raises(UserError, match="--context goes only with a language model"):
        check_for_model(options, other, "onnx")
    with pytest.raises(UserError, match="--sequences goes only with a language model"):
        check_for_model(CompileOptions(sequences=2), other, "onnx")
    with pytest.raises(UserError, match="--text goes only with a language model"):
        check_for_model(CompileOptions(text=other), other, "onnx")
    with pytest.raises(UserError, match="--dtype bf16 does not go with a language model"):
        check_for_model(CompileOptions(dtype="bf16"), path, "gguf")
    check_for_model(CompileOptions(dtype="fp16"), path, "gguf")
    with pytest.raises(UserError, match="--dtype fp16 does not go with --quantize int4"):
        check_for_model(CompileOptions(dtype="fp16", quantize="int4"), path, "gguf")
    for reader in (load, load_here):
        with pytest.raises(UserError, match="is a language model: give --context"):
            reader(path)


def refused(path: Path, message: str) -> None:
    with pytest.raises(EdgeError, match=message) as error:
        import_decoder(path, 32, 8)
    assert "\n" not in str(error.value)


def test_what_is_not_read_is_refused_by_name(tmp_path: Path) -> None:
    path, model = made(tmp_path, "llama")
    values, tensors = metadata_of("llama", model.config), tensors_of("llama", model)

    def again(changes: dict[str, Any], more: dict[str, Stored] | None = None, drop: str = "") -> Path:
        kept = {name: tensor for name, tensor in tensors.items() if name != drop}
        return write_gguf(path, {**values, **changes}, {**kept, **(more or {})})

    refused(
        again({"general.architecture": "mamba"}),
        "'mamba' is not read .*gemma, gemma2, gemma3, gpt2, llama, phi3, qwen2, qwen3",
    )
    refused(again({"general.type": "adapter"}), "general.type")
    refused(again({"split.count": 3}), "llama-gguf-split --merge")
    refused(again({"llama.expert_count": 8}), "expert_count")
    refused(again({"llama.attention.clamp_kqv": 8.0}), "clamp_kqv")
    refused(again({"llama.rope.scaling.type": "longrope"}), "longrope")
    refused(again({"llama.rope.dimension_count": 8}), "dimension_count")
    refused(again({"llama.attention.head_count": [4, 4]}), "a list of 2")
    refused(again({}, {"blk.0.attn_sinks.weight": tensors["output_norm.weight"]}), "attn_sinks")
    refused(again({}, {"blk.7.attn_norm.weight": tensors["output_norm.weight"]}), "layers.7.input_layernorm")
    refused(again({}, drop="blk.1.ffn_up.weight"), "layers.1.mlp.up_proj.weight' .* missing")
    refused(again({}, drop="token_embd.weight"), "token_embd.weight is missing")
    other = tensors["blk.1.ffn_up.weight"]
    refused(again({}, {"blk.1.ffn_up.weight": Stored("IQ9", other.shape, b"")}), "has type 999; F32, F16")
    bad = np.full(other.shape, np.nan)
    refused(again({}, {"blk.1.ffn_up.weight": stored(bad)}), "NaN")
    scales = Stored("Q8_0", other.shape, b"\xff" * (34 * other.shape[0] * other.shape[1] // 32))
    refused(again({}, {"blk.1.ffn_up.weight": scales}), "NaN")
