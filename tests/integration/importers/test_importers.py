"""Whole models of every format through importer and compiler, beside their original runtimes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch  # isort: split

import tvm  # before torch: importing it takes longer the more modules are loaded
from torch import nn

from host.errors import EngineError, ImportFailed, ModelFileError, ShapeError
from host.importers import from_module
from host.importers import load_here as load
from host.model import ImportedModel
from research.models.export import export_onnx_model
from research.models.zoo import make, randomise_batch_norm
from research.models.zoo_model import ImageModel, TokenModel
from tests.fuzz.corpus import tflite_models
from tests.scheduling.repetitions import in_turn
from tests.shared_cache import zoo_model
from tests.unit.importers.harness import check


@in_turn("name, format_name", ("mobilenetv2", "bert-tiny", "mlp", "lstm"), ("onnx", "pt2"))
@pytest.mark.timeout(1200)
def test_models_of_the_zoo(name: str, format_name: str) -> None:
    check_model_of_the_zoo(name, format_name)


# What converts to TFLite is two gigabytes of packages, which are installed first.
@pytest.mark.long
@pytest.mark.parametrize("name", ["mobilenetv2", "bert-tiny"])
@pytest.mark.timeout(1200)
def test_models_of_the_zoo_as_tflite(name: str) -> None:
    check_model_of_the_zoo(name, "tflite")


def check_model_of_the_zoo(name: str, format_name: str) -> None:
    model = check(load(zoo_model(name, format_name)), 1e-3)
    assert isinstance(model.module, tvm.IRModule) and len(model.golden) == 3
    assert model.format == format_name and model.name == name
    written = sum(parameter.numel() for parameter in make(name)[0].parameters())
    # Exporters fold batch normalisation into convolutions, and write constants beside the weights.
    assert model.parameters == pytest.approx(written, rel=0 if format_name == "pt2" else 0.05)
    for first, second in combinations(model.golden, 2):
        for a, b in zip(first.outputs, second.outputs, strict=True):
            assert np.abs(a - b).max() > 1e-2 * np.abs(a).max()


@pytest.mark.parametrize("number", range(3))
def test_tflite_files_of_every_kind_of_layer(number: int, tmp_path: Path) -> None:
    """A dense layer, a convolution and a table, put together by hand."""
    path = tmp_path / "model.tflite"
    path.write_bytes(tflite_models.seeds()[number])
    model = check(load(path), 1e-5)
    assert model.format == "tflite" and model.module is not None and len(model.golden) == 3


def test_inputs_and_outputs_of_bert_keep_names_and_types() -> None:
    model = load(zoo_model("bert-tiny", "onnx"), golden_cases=1)
    assert [entry.name for entry in model.signature.inputs] == [
        "input_ids",
        "attention_mask",
        "token_type_ids",
    ]
    assert {entry.dtype for entry in model.signature.inputs} == {"int64"}
    assert [entry.name for entry in model.signature.outputs] == ["last_hidden_state", "pooler_output"]
    assert model.golden[0].inputs[2].max() <= 1  # a table of two


def _transformer(class_name: str, config_name: str, wrapper: type[nn.Module], **options: object) -> nn.Module:
    import transformers

    config = getattr(transformers, config_name)(**options)
    torch.manual_seed(0)
    module = wrapper(getattr(transformers, class_name)(config), ("logits",))
    return randomise_batch_norm(module).eval().requires_grad_(False)


def _gpt2() -> tuple[nn.Module, torch.Tensor]:
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 50, "n_positions": 32, "use_cache": False}
    return _transformer("GPT2LMHeadModel", "GPT2Config", TokenModel, **sizes), torch.zeros(
        1, 16, dtype=torch.int64
    )


def _convnext() -> tuple[nn.Module, torch.Tensor]:
    sizes = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1], "num_labels": 5}
    module = _transformer("ConvNextForImageClassification", "ConvNextConfig", ImageModel, **sizes)
    return module, torch.zeros(1, 3, 64, 64)


def _vit() -> tuple[nn.Module, torch.Tensor]:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    module = _transformer(
        "ViTForImageClassification", "ViTConfig", ImageModel, image_size=32, patch_size=8, **sizes
    )
    return module, torch.zeros(1, 3, 32, 32)


def _swin() -> tuple[nn.Module, torch.Tensor]:
    sizes = {"embed_dim": 16, "depths": [2, 2], "num_heads": [2, 2], "window_size": 4}
    module = _transformer(
        "SwinForImageClassification", "SwinConfig", ImageModel, image_size=64, patch_size=4, **sizes
    )
    return module, torch.zeros(1, 3, 64, 64)


def _upsampling() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, stride=2),
        nn.InstanceNorm2d(8, affine=True),
        nn.SiLU(),
        nn.ConvTranspose2d(8, 4, 4, 2, 1),
        nn.GroupNorm(2, 4),
        nn.Hardswish(),
        nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False),
        nn.PReLU(4),
        nn.Upsample(scale_factor=2),
        nn.AvgPool2d(3, 2, 1, ceil_mode=True),
    )
    return module.eval().requires_grad_(False), torch.zeros(1, 3, 16, 16)


@pytest.mark.parametrize("build", [_gpt2, _vit, _upsampling])
def test_torch_modules(build: Callable[[], tuple[nn.Module, torch.Tensor]]) -> None:
    module, example = build()
    check(from_module(module, [example], golden_cases=2), 1e-3)


@pytest.mark.parametrize("build", [_gpt2, _convnext, _swin, _upsampling])
def test_modules_as_onnx(build: Callable[[], tuple[nn.Module, torch.Tensor]], tmp_path: Path) -> None:
    module, example = build()
    path = export_onnx_model(module, (example,), ["x"], ["y"], tmp_path / "model.onnx")
    check(load(path, golden_cases=2), 1e-3)


class Several(nn.Module):
    """Several inputs and outputs of several types, one input never used, one given by name."""

    def forward(
        self,
        pair: tuple[torch.Tensor, torch.Tensor],
        unused: torch.Tensor,
        flags: torch.Tensor,
        *,
        scale: torch.Tensor,
    ) -> dict[str, torch.Tensor]:
        first, second = pair
        total = first * scale + second
        return {"total": total, "largest": total.argmax(-1), "chosen": flags & (total > 0)}


def _save(module: nn.Module, arguments: tuple[object, ...], path: Path, **options: object) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own code
        torch.export.save(torch.export.export(module, arguments, **options), path)  # type: ignore[arg-type]
    return path


def test_nested_named_and_unused_inputs(tmp_path: Path) -> None:
    ones = torch.ones(2, 5)
    arguments = ((ones, ones), torch.ones(7, dtype=torch.int32), torch.ones(2, 5, dtype=torch.bool))
    path = _save(Several(), arguments, tmp_path / "m.pt2", kwargs={"scale": ones})
    model = check(load(path))
    assert [entry.shape for entry in model.signature.inputs] == [(2, 5), (2, 5), (7,), (2, 5), (2, 5)]
    assert [entry.dtype for entry in model.signature.inputs] == [
        "float32",
        "float32",
        "int32",
        "bool",
        "float32",
    ]
    assert [entry.dtype for entry in model.signature.outputs] == ["float32", "int64", "bool"]


class Summing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x > 0).cumsum(-1) + torch.arange(x.shape[-1]).cumsum(0)


def test_truth_values_are_counted_as_whole_numbers() -> None:
    """TVM's own import sums them as truth values."""
    model = check(from_module(Summing(), [torch.ones(2, 9)]))
    assert model.signature.outputs[0].dtype == "int64"


def test_open_dimensions_of_an_archive(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(6, 4), nn.ReLU())
    batch = torch.export.Dim("batch", min=2, max=64)
    path = _save(module, (torch.ones(3, 6),), tmp_path / "m.pt2", dynamic_shapes={"input": {0: batch}})
    with pytest.raises(ShapeError, match=r"m\.pt2: input 'input' .*--shape input=N,6"):
        load(path)
    model = check(load(path, {"input": (5, 6)}))
    assert model.signature.outputs[0].shape == (5, 4)
    with pytest.raises(ShapeError, match="--shape input=5,7 does not fit"):
        load(path, {"input": (5, 7)})
    with pytest.raises(ShapeError, match="does not accept --shape input=100,6"):
        load(path, {"input": (100, 6)})


class Broken(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if float(x.sum()) > 0 else -x


def test_a_module_that_cannot_be_exported() -> None:
    with pytest.raises(ImportFailed, match=r"Broken: torch\.export cannot capture the module") as caught:
        from_module(Broken(), [torch.ones(2)])
    assert "\n" not in str(caught.value)
    assert "torch.onnx.export may make an ONNX file" in str(caught.value)


class Sorting(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eigvalsh(x @ x.T)


def test_an_operator_of_torch_without_conversion() -> None:
    model: ImportedModel = from_module(Sorting(), [torch.ones(3, 4)])
    assert (
        model.module is None and "linalg_eigh" in str(model.operator) and str(model.operator) in model.reason
    )
    assert len(model.golden) == 3


def _cut(path: Path, source: Path) -> Path:
    path.write_bytes(source.read_bytes()[: source.stat().st_size * 2 // 3])
    return path


def _tflite(path: Path) -> Path:
    """A dense layer and a softmax."""
    path.write_bytes(tflite_models.seeds()[0])
    return path


@pytest.mark.parametrize("format_name", ["pt2", "tflite"])
def test_truncated_and_foreign_files(tmp_path: Path, format_name: str) -> None:
    path = tmp_path / f"model.{format_name}"
    source = zoo_model("mlp", "pt2") if format_name == "pt2" else _tflite(tmp_path / "whole.tflite")
    with pytest.raises(ModelFileError, match="truncated") as caught:
        load(_cut(path, source))
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)
    path.write_text("not a model at all\n" * 30)
    with pytest.raises(ModelFileError):
        load(path)
    path.write_bytes(b"")
    with pytest.raises(ModelFileError, match="empty"):
        load(path)


def test_weights_of_an_archive_that_are_not_numbers(tmp_path: Path) -> None:
    module, example = make("mlp")
    module[0].weight[3, 3] = float("nan")  # type: ignore[index, operator]
    with pytest.raises(ModelFileError, match=r"weight '0\.weight' holds NaN"):
        load(_save(module, example, tmp_path / "m.pt2"))


def test_weights_of_a_tflite_file_that_are_not_numbers(tmp_path: Path) -> None:
    path = _tflite(tmp_path / "m.tflite")
    model = tflite_models.objects(path.read_bytes())
    weights = max(
        (buffer for buffer in model.buffers if buffer.data is not None), key=lambda one: len(one.data)
    )
    weights.data = np.full(len(weights.data) // 4, np.nan, np.float32).view(np.uint8)
    path.write_bytes(tflite_models.packed(model))
    with pytest.raises(ModelFileError, match="holds NaN"):
        load(path)


def test_an_archive_of_something_else(tmp_path: Path) -> None:
    import zipfile

    path = tmp_path / "m.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(ModelFileError, match=r"not an archive of torch\.export"):
        load(path)


def test_a_tflite_file_that_the_runtime_refuses(tmp_path: Path) -> None:
    """Sound to read, but with an operator number that nobody knows."""
    import tflite

    data = bytearray(_tflite(tmp_path / "whole.tflite").read_bytes())
    model = tflite.Model.GetRootAsModel(bytes(data), 0)
    code = model.OperatorCodes(0)
    for field in (4, 10):  # both places where the number stands
        offset = code._tab.Offset(field)
        if offset:
            data[code._tab.Pos + offset] = 120
    path = tmp_path / "m.tflite"
    path.write_bytes(bytes(data))
    with pytest.raises(EngineError, match=r"m\.tflite"):
        load(path)
