"""Folders of transformers with encoders, vision and sound models: outputs are those of transformers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import sdk
from host.errors import EdgeError, ImportFailed, ModelFileError, ShapeError, UserError
from host.importers.encoders import archive
from host.importers.encoders.archive import exported_folder
from host.progress import Silence
from tests.deployments.workers import answer_here

_SMALL = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 32, "intermediate_size": 64}
_SPEECH = {
    "vocab_size": 100,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "num_mel_bins": 20,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_source_positions": 50,
    "max_target_positions": 20,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertForSequenceClassification", {**_SMALL, "vocab_size": 100, "max_position_embeddings": 64}),
    "roberta": (
        "RobertaForTokenClassification",
        {**_SMALL, "vocab_size": 100, "max_position_embeddings": 66, "pad_token_id": 1},
    ),
    "distilbert": (
        "DistilBertModel",
        {"vocab_size": 100, "dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64},
    ),
    "vit": ("ViTForImageClassification", {**_SMALL, "image_size": 32, "patch_size": 8}),
    "resnet": (
        "ResNetForImageClassification",
        {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]},
    ),
    "whisper": ("WhisperForConditionalGeneration", _SPEECH),
    "ast": (
        "ASTForAudioClassification",
        {**_SMALL, "num_mel_bins": 16, "max_length": 40, "frequency_stride": 8, "time_stride": 8},
    ),
    "clip": (
        "CLIPModel",
        {
            "text_config": {**_SMALL, "vocab_size": 100, "max_position_embeddings": 16},
            "vision_config": {**_SMALL, "image_size": 32, "patch_size": 8},
            "projection_dim": 16,
        },
    ),
}


def folder_of(name: str, place: Path) -> tuple[Path, Any]:
    """A folder with seeded weights, and its model."""
    title, options = MODELS[name]
    kind = getattr(transformers, title)
    torch.manual_seed(0)
    model = kind(kind.config_class(**options)).eval()
    model.save_pretrained(place / name)
    return place / name, model


@pytest.fixture
def exported_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a worker, which `test_code_of_the_folder_is_not_run` has."""
    answer_here(monkeypatch, archive)


here = pytest.mark.usefixtures("exported_here")


def changed(folder: Path, **fields: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    return folder


# Texts with positions from 0 and from behind the padding, images, sound, a part of a model; others by hand.
LONG = ("distilbert", "vit", "clip")


@here
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in MODELS]
)
def test_outputs_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    folder, model = folder_of(name, tmp_path)
    shapes = (
        {"sequence": (16,)}
        if "bert" in name
        else {"pixel_values": (1, 3, 32, 32)}
        if name == "resnet"
        else {}
    )
    bundle = tmp_path / "bundle"
    sdk.compile(folder, output=bundle, threads=1, shapes=shapes, progress=Silence(), backend="tvm")
    draw = np.random.default_rng(1)
    with sdk.load(bundle) as loaded:
        feed = {
            one.name: draw.integers(0, 2, one.shape)
            if one.dtype == "int64"
            else draw.normal(size=one.shape).astype("float32")
            for one in loaded.signature.inputs
        }
        found = list(loaded.run(feed).values())
    part = model.get_encoder() if name == "whisper" else model
    with torch.no_grad():
        expected = part(**{key: torch.from_numpy(value) for key, value in feed.items()}, return_dict=True)
    assert ("attention_mask" in feed) is ("bert" in name or name == "clip")
    tensors = [value for value in expected.values() if isinstance(value, torch.Tensor)]
    for mine, theirs in zip(found, tensors, strict=True):
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-3, atol=1e-4)


@here
def test_a_folder_is_exported_once_and_again_for_other_sizes(tmp_path: Path) -> None:
    folder, _ = folder_of("bert", tmp_path)
    lines: list[str] = []
    first = exported_folder(folder, {}, lines.append)
    assert first.stem == "bert"
    assert any("bert is exported" in line for line in lines)
    assert any("input_ids [1, 64]" in line and "--shape gives other sizes" in line for line in lines)
    written = first.stat().st_mtime_ns
    assert exported_folder(folder, {}) == first and first.stat().st_mtime_ns == written
    assert exported_folder(folder, {"sequence": (8,)}) != first
    with pytest.raises(ShapeError, match=r"names 'seq', but the inputs are input_ids.*batch, sequence"):
        exported_folder(folder, {"seq": (8,)})


@here
def test_weights_that_are_missing_are_not_drawn_at_random(tmp_path: Path) -> None:
    folder, _ = folder_of("bert", tmp_path)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    lost = sorted(name for name in tensors if "classifier" in name or "layer.0.output.dense" in name)
    save_file({name: value for name, value in tensors.items() if name not in lost}, path, {"format": "pt"})
    with pytest.raises(ModelFileError, match=f"has no weights for {len(lost)} tensors of Bert"):
        exported_folder(folder, {})


@here
def test_weights_in_pickles_are_not_read(tmp_path: Path) -> None:
    folder, model = folder_of("bert", tmp_path)
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(ModelFileError, match="weights in pickles are not read"):
        exported_folder(folder, {})


def test_code_of_the_folder_is_not_run(tmp_path: Path) -> None:
    folder, _ = folder_of("bert", tmp_path)
    mark = tmp_path / "ran"
    (folder / "own.py").write_text(f"open({str(mark)!r}, 'w')\nclass Own: pass\nclass OwnConfig: pass\n")
    changed(folder, architectures=["Own"], auto_map={"AutoModel": "own.Own", "AutoConfig": "own.OwnConfig"})
    with pytest.raises(ModelFileError, match=r"names the class 'Own', which transformers .* does not have"):
        exported_folder(folder, {})
    changed(folder, architectures=["BertForSequenceClassification"])
    exported_folder(folder, {})
    assert not mark.exists()


@here
@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"architectures": ["pipeline"]}, ModelFileError, "names the class 'pipeline'"),
        ({"quantization_config": {"bits": 4}}, ImportFailed, "quantised weights are not read"),
        ({"hidden_size": 48}, ModelFileError, "transformers cannot read the model"),
        ({"num_hidden_layers": 10**9}, ModelFileError, "num_hidden_layers 1000000000 is over 512"),
    ],
)
def test_a_folder_that_does_not_fit_itself_is_one_line(
    fields: dict[str, Any],
    error: type[EdgeError],
    words: str,
    tmp_path: Path,
) -> None:
    folder, _ = folder_of("bert", tmp_path)
    with pytest.raises(error, match=words) as caught:
        exported_folder(changed(folder, **fields), {})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"shapes": {"sequence": ((1, 64),)}}, "a range in --shape needs an ONNX file"),
        ({"quantize": "int8"}, "a PyTorch model is quantised as ONNX"),
        (
            {"context_tokens": 64},
            r"with a language model, and .* has a Bert\w+: leave --context out, or save the text model",
        ),
    ],
)
def test_options_of_other_models_are_refused_before_the_export(
    settings: dict[str, Any], words: str, tmp_path: Path
) -> None:
    folder, _ = folder_of("bert", tmp_path)
    with pytest.raises(UserError, match=words):
        sdk.compile(folder, output=tmp_path / "bundle", progress=Silence(), **settings)
