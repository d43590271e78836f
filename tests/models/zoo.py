"""The models that tests and benchmarks use: library configurations with seeded random weights.

Nothing is downloaded. BatchNorm statistics are randomised, because the default ones (mean 0,
variance 1, weight 1, bias 0) hide mistakes in folding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from tests.models import networks


@dataclass(frozen=True)
class ZooModel:
    """One model of the zoo.

    Attributes:
        build: makes the module, with weights from the current torch seed.
        inputs: makes example inputs, in the order of `forward`.
        input_names: names of the inputs in ONNX.
        output_names: names of the outputs in ONNX.
        formats: formats that it is exported to by default.
    """

    build: Callable[[], nn.Module]
    inputs: Callable[[], tuple[torch.Tensor, ...]]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    formats: tuple[str, ...] = ("onnx", "pt2")


class TensorOutputs(nn.Module):
    """A transformers model that returns plain tensors instead of a dictionary.

    Args:
        model: the wrapped model.
        output_names: attributes of the result to return, in order.
    """

    def __init__(self, model: nn.Module, output_names: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self.selected = output_names

    def run(self, **inputs: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """The selected outputs."""
        result = self.model(**inputs, return_dict=True)
        outputs = tuple(getattr(result, name) for name in self.selected)
        return outputs[0] if len(outputs) == 1 else outputs


class ImageModel(TensorOutputs):
    """Takes an image."""

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Image (N, 3, H, W) to the selected outputs."""
        return self.run(pixel_values=pixel_values)


class TokenModel(TensorOutputs):
    """Takes token numbers."""

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Tokens (N, T) int64 to the selected outputs."""
        return self.run(input_ids=input_ids)


class SentencePairModel(TensorOutputs):
    """Takes what BERT takes."""

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
    ) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Tokens, mask and sentence numbers, each (N, T) int64, to the selected outputs."""
        return self.run(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)


def randomise_batch_norm(module: nn.Module) -> nn.Module:
    """Give every BatchNorm statistics and an affine part that folding cannot get right by accident.

    Convolutions before them get weights that keep the signal's size: with the library's small ones the shifts
    drown the image within a few layers, and every image then gives the same outputs.
    """
    parts = list(module.modules())
    if any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in parts):
        for part in parts:
            if isinstance(part, nn.Conv2d | nn.ConvTranspose2d):
                nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
    for part in parts:
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            nn.init.uniform_(part.weight, 0.8, 1.2)
            nn.init.normal_(part.bias, std=0.1)
            assert part.running_mean is not None and part.running_var is not None
            nn.init.normal_(part.running_mean, std=0.1)
            nn.init.uniform_(part.running_var, 0.5, 1.5)
    return module


def make(name: str, seed: int = 0) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A model of the zoo in evaluation mode, and example inputs.

    Args:
        name: a key of `ZOO`.
        seed: of the weights and the example inputs.

    Raises:
        KeyError: no such model.
    """
    entry = ZOO[name]
    torch.manual_seed(seed)
    module = randomise_batch_norm(entry.build()).eval().requires_grad_(False)
    return module, entry.inputs()


def _image(size: int = 224) -> Callable[[], tuple[torch.Tensor, ...]]:
    return lambda: (torch.randn(1, 3, size, size),)


def _bert_inputs() -> tuple[torch.Tensor, ...]:
    length = 128
    mask = torch.ones(1, length, dtype=torch.int64)
    mask[:, 100:] = 0
    kinds = (torch.arange(length) >= length // 2).to(torch.int64)[None]
    return torch.randint(0, 30522, (1, length)), mask, kinds


def _vision(class_name: str, config_name: str, **options: object) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import transformers

        config = getattr(transformers, config_name)(**options)
        return ImageModel(getattr(transformers, class_name)(config), ("logits",))

    return build


def _bert(**options: object) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        from transformers import BertConfig, BertModel

        model = BertModel(BertConfig(attn_implementation="eager", **options))
        return SentencePairModel(model, _BERT_OUTPUTS)

    return build


def _gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(use_cache=False, attn_implementation="eager"))
    return TokenModel(model, ("logits",))


_BERT_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_BERT_OUTPUTS = ("last_hidden_state", "pooler_output")
_ALL_FORMATS = ("onnx", "pt2", "tflite")


def _image_model(build: Callable[[], nn.Module], formats: tuple[str, ...] = ("onnx", "pt2")) -> ZooModel:
    return ZooModel(build, _image(), ("pixel_values",), ("logits",), formats)


ZOO: dict[str, ZooModel] = {
    "mobilenetv2": _image_model(
        _vision("MobileNetV2ForImageClassification", "MobileNetV2Config", num_labels=1001), _ALL_FORMATS
    ),
    "resnet50": _image_model(_vision("ResNetForImageClassification", "ResNetConfig", num_labels=1000)),
    "convnext-tiny": _image_model(
        _vision("ConvNextForImageClassification", "ConvNextConfig", num_labels=1000)
    ),
    "bert-tiny": ZooModel(
        _bert(hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512),
        _bert_inputs,
        _BERT_INPUTS,
        _BERT_OUTPUTS,
        _ALL_FORMATS,
    ),
    "bert-base": ZooModel(_bert(), _bert_inputs, _BERT_INPUTS, _BERT_OUTPUTS),
    "gpt2": ZooModel(_gpt2, lambda: (torch.randint(0, 50257, (1, 128)),), ("input_ids",), ("logits",)),
    "mlp": ZooModel(networks.mlp, lambda: (torch.randn(1, 784),), ("features",), ("scores",)),
    "dcgan": ZooModel(networks.dcgan_generator, lambda: (torch.randn(1, 100, 1, 1),), ("noise",), ("image",)),
    "resnext50": _image_model(networks.resnext50),
    "lstm": ZooModel(
        networks.lstm_tagger, lambda: (torch.randint(0, 1000, (1, 16)),), ("tokens",), ("tags",)
    ),
    "gru-keywords": ZooModel(
        networks.gru_keywords, lambda: (torch.randn(1, 50, 40),), ("frames",), ("scores",), ("onnx",)
    ),
    "lstm-speech": ZooModel(
        networks.lstm_speech, lambda: (torch.randn(1, 50, 40),), ("frames",), ("scores",), ("onnx",)
    ),
    "aspp": ZooModel(networks.DilatedPyramid, _image(256), ("image",), ("scores",), ("onnx",)),
    "vit-tiny": _image_model(
        _vision(
            "ViTForImageClassification",
            "ViTConfig",
            hidden_size=192,
            num_hidden_layers=12,
            num_attention_heads=3,
            intermediate_size=768,
            attn_implementation="eager",
        )
    ),
    "swin-tiny": _image_model(_vision("SwinForImageClassification", "SwinConfig", num_labels=1000)),
    "efficientnet-b0": _image_model(
        _vision(
            "EfficientNetForImageClassification",
            "EfficientNetConfig",
            width_coefficient=1.0,
            depth_coefficient=1.0,
            hidden_dim=1280,
            image_size=224,
        )
    ),
}
