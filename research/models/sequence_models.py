"""Models of the zoo over sequences: speech, text, decoders, series of measurements."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from research.models import sequence_networks, volume_networks
from research.models.zoo_model import ZooModel, text, token_model

_ONNX = ("onnx",)


def _decoder(class_name: str, config_name: str, **options: object) -> Callable[[], nn.Module]:
    return text(class_name, config_name, "logits", use_cache=False, attn_implementation="eager", **options)


SEQUENCE_MODELS: dict[str, ZooModel] = {
    "whisper-tiny-encoder": ZooModel(
        sequence_networks.whisper_encoder,
        lambda: (torch.randn(1, 80, 3000),),
        ("mel",),
        ("hidden",),
        _ONNX,
    ),
    "wav2vec2-small": ZooModel(
        sequence_networks.wav2vec2_small, lambda: (torch.randn(1, 16000),), ("sound",), ("logits",), _ONNX
    ),
    "ds-cnn-keywords": ZooModel(
        sequence_networks.keyword_convolutions,
        lambda: (torch.randn(1, 1, 49, 10),),
        ("frames",),
        ("scores",),
        _ONNX,
    ),
    "tcn-denoiser": ZooModel(
        sequence_networks.temporal_convolutions,
        lambda: (torch.randn(1, 64, 400),),
        ("frames",),
        ("mask",),
        _ONNX,
    ),
    "conformer-small": ZooModel(
        volume_networks.Conformer, lambda: (torch.randn(1, 320, 80),), ("frames",), ("hidden",), _ONNX
    ),
    "crnn-ocr": ZooModel(
        sequence_networks.text_line_reader,
        lambda: (torch.randn(1, 1, 32, 160),),
        ("line",),
        ("characters",),
        _ONNX,
    ),
    "anomaly-autoencoder": ZooModel(
        sequence_networks.autoencoder, lambda: (torch.randn(1, 640),), ("spectrum",), ("restored",), _ONNX
    ),
    "patchtst": ZooModel(
        sequence_networks.series_transformer,
        lambda: (torch.randn(1, 512, 7),),
        ("series",),
        ("forecast",),
        _ONNX,
    ),
    "distilbert": token_model(
        text("DistilBertModel", "DistilBertConfig", attn_implementation="eager"), 30522, 128, "hidden"
    ),
    "albert-base": token_model(
        text(
            "AlbertModel",
            "AlbertConfig",
            hidden_size=768,
            num_attention_heads=12,
            intermediate_size=3072,
            attn_implementation="eager",
        ),
        30000,
        64,
        "hidden",
    ),
    "electra-small": token_model(
        text("ElectraModel", "ElectraConfig", attn_implementation="eager"), 30522, 128, "hidden"
    ),
    "mobilebert": token_model(
        text("MobileBertModel", "MobileBertConfig", attn_implementation="eager"), 30522, 128, "hidden"
    ),
    "minilm-l6": token_model(
        text(
            "BertModel",
            "BertConfig",
            hidden_size=384,
            num_hidden_layers=6,
            num_attention_heads=12,
            intermediate_size=1536,
            attn_implementation="eager",
        ),
        30522,
        64,
        "hidden",
    ),
    "t5-small-encoder": token_model(text("T5EncoderModel", "T5Config"), 32128, 128, "hidden"),
    "llama-60m": token_model(
        _decoder(
            "LlamaForCausalLM",
            "LlamaConfig",
            vocab_size=32000,
            hidden_size=512,
            intermediate_size=1376,
            num_hidden_layers=8,
            num_attention_heads=8,
            num_key_value_heads=4,
        ),
        32000,
        64,
        "logits",
    ),
    "pythia-70m": token_model(
        _decoder(
            "GPTNeoXForCausalLM",
            "GPTNeoXConfig",
            vocab_size=50304,
            hidden_size=512,
            intermediate_size=2048,
            num_hidden_layers=6,
            num_attention_heads=8,
        ),
        50304,
        64,
        "logits",
    ),
    "qwen3-tiny": token_model(
        _decoder(
            "Qwen3ForCausalLM",
            "Qwen3Config",
            vocab_size=32000,
            hidden_size=512,
            intermediate_size=1536,
            num_hidden_layers=6,
            num_attention_heads=8,
            num_key_value_heads=2,
            head_dim=64,
        ),
        32000,
        64,
        "logits",
    ),
}
