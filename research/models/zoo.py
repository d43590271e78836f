"""Models for benchmarks and tests: library configurations with seeded random weights.

Nothing is downloaded. BatchNorm statistics are randomised, because the default ones (mean 0,
variance 1, weight 1, bias 0) hide mistakes in folding.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from research.models import networks
from research.models.dense_image_models import DENSE_IMAGE_MODELS
from research.models.image_models import IMAGE_MODELS
from research.models.sequence_models import SEQUENCE_MODELS
from research.models.step_networks import STEP_MODELS
from research.models.zoo_model import (
    SentencePairModel,
    TokenModel,
    ZooModel,
    image_input,
    image_model,
    vision,
)


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


def _bert_inputs() -> tuple[torch.Tensor, ...]:
    length = 128
    mask = torch.ones(1, length, dtype=torch.int64)
    mask[:, 100:] = 0
    kinds = (torch.arange(length) >= length // 2).to(torch.int64)[None]
    return torch.randint(0, 30522, (1, length)), mask, kinds


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


ZOO: dict[str, ZooModel] = (
    {
        "mobilenetv2": image_model(
            vision("MobileNetV2ForImageClassification", "MobileNetV2Config", num_labels=1001),
            formats=_ALL_FORMATS,
        ),
        "resnet50": image_model(vision("ResNetForImageClassification", "ResNetConfig", num_labels=1000)),
        "convnext-tiny": image_model(
            vision("ConvNextForImageClassification", "ConvNextConfig", num_labels=1000)
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
        "dcgan": ZooModel(
            networks.dcgan_generator, lambda: (torch.randn(1, 100, 1, 1),), ("noise",), ("image",)
        ),
        "resnext50": image_model(networks.resnext50),
        "lstm": ZooModel(
            networks.lstm_tagger, lambda: (torch.randint(0, 1000, (1, 16)),), ("tokens",), ("tags",)
        ),
        "gru-keywords": ZooModel(
            networks.gru_keywords, lambda: (torch.randn(1, 50, 40),), ("frames",), ("scores",), ("onnx",)
        ),
        "lstm-speech": ZooModel(
            networks.lstm_speech, lambda: (torch.randn(1, 50, 40),), ("frames",), ("scores",), ("onnx",)
        ),
        "aspp": ZooModel(networks.DilatedPyramid, image_input(256), ("image",), ("scores",), ("onnx",)),
        "vit-tiny": image_model(
            vision(
                "ViTForImageClassification",
                "ViTConfig",
                hidden_size=192,
                num_hidden_layers=12,
                num_attention_heads=3,
                intermediate_size=768,
                attn_implementation="eager",
            )
        ),
        "swin-tiny": image_model(vision("SwinForImageClassification", "SwinConfig", num_labels=1000)),
        "efficientnet-b0": image_model(
            vision(
                "EfficientNetForImageClassification",
                "EfficientNetConfig",
                width_coefficient=1.0,
                depth_coefficient=1.0,
                hidden_dim=1280,
                image_size=224,
            )
        ),
    }
    | IMAGE_MODELS
    | DENSE_IMAGE_MODELS
    | SEQUENCE_MODELS
    | STEP_MODELS
)
