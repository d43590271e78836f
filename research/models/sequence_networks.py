"""Networks over sequences that take a wrapper or that transformers has no configuration for."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from research.models.mobile_networks import convolution


class Attribute(nn.Module):
    """A module of which one attribute of the result is the output."""

    def __init__(self, module: nn.Module, name: str) -> None:
        super().__init__()
        self.module, self.selected = module, name

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """The input of the module to the selected output."""
        result: torch.Tensor = getattr(self.module(values), self.selected)
        return result


def whisper_encoder() -> nn.Module:
    """The encoder of Whisper tiny: 3,000 frames of 80 bands, 1,500 positions."""
    from transformers import WhisperConfig, WhisperModel

    config = WhisperConfig(
        d_model=384,
        encoder_layers=4,
        encoder_attention_heads=6,
        encoder_ffn_dim=1536,
        decoder_layers=1,
        decoder_attention_heads=6,
        decoder_ffn_dim=1536,
        attn_implementation="eager",
    )
    return Attribute(WhisperModel(config).encoder, "last_hidden_state")


def wav2vec2_small() -> nn.Module:
    """wav2vec 2.0 with four layers of 384 over one second of sound."""
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    config = Wav2Vec2Config(
        hidden_size=384,
        num_hidden_layers=4,
        num_attention_heads=6,
        intermediate_size=1536,
        conv_dim=(256,) * 7,
        attn_implementation="eager",
    )
    return Attribute(Wav2Vec2ForCTC(config), "logits")


def keyword_convolutions() -> nn.Module:
    """The keyword spotter of MLPerf Tiny: depthwise-separable convolutions over 49 frames of 10 bands."""
    layers: list[nn.Module] = [
        nn.Conv2d(1, 64, (10, 4), 2, (5, 1), bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
    ]
    for _ in range(4):
        layers += [convolution(64, 64, 3, groups=64), convolution(64, 64)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 12))


class TemporalBlock(nn.Module):
    """Conv-TasNet's block: 1x1, dilated depthwise convolution over time, 1x1, and a shortcut."""

    def __init__(self, channels: int, inner: int, dilation: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(channels, inner, 1),
            nn.PReLU(),
            nn.GroupNorm(1, inner),
            nn.Conv1d(inner, inner, 3, padding=dilation, dilation=dilation, groups=inner),
            nn.PReLU(),
            nn.GroupNorm(1, inner),
            nn.Conv1d(inner, channels, 1),
        )

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """Frames (N, C, T) to the same shape."""
        result: torch.Tensor = frames + self.body(frames)
        return result


def temporal_convolutions() -> nn.Module:
    """A denoiser by dilated convolutions over time."""
    blocks = [TemporalBlock(64, 128, 2**power) for power in range(8)]
    return nn.Sequential(*blocks, nn.Conv1d(64, 64, 1), nn.Sigmoid())


class TextLineReader(nn.Module):
    """CRNN: convolutions over a line of text, an LSTM in both directions, and characters."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            convolution(1, 32, 3),
            nn.MaxPool2d(2),
            convolution(32, 64, 3),
            nn.MaxPool2d(2),
            convolution(64, 128, 3),
            nn.MaxPool2d((2, 1)),
            convolution(128, 128, 3),
            nn.MaxPool2d((4, 1)),
        )
        self.recurrent = nn.LSTM(128, 96, bidirectional=True, batch_first=True)
        self.head = nn.Linear(192, 97)

    def forward(self, line: torch.Tensor) -> torch.Tensor:
        """Line (N, 1, 32, W) to scores (N, W / 4, 97)."""
        features = self.features(line).squeeze(2).transpose(1, 2)
        scores: torch.Tensor = self.head(self.recurrent(features)[0])
        return scores.log_softmax(-1)


def text_line_reader() -> nn.Module:
    """A reader of lines of text."""
    return TextLineReader()


def autoencoder() -> nn.Module:
    """The detector of anomalies of MLPerf Tiny: dense layers of 128 with 8 in the middle."""
    widths = (640, 128, 128, 128, 128, 8, 128, 128, 128, 128)
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], 640))


def series_transformer() -> nn.Module:
    """PatchTST: a forecast of 96 steps from 512 steps of 7 series."""
    from transformers import PatchTSTConfig, PatchTSTForPrediction

    config = PatchTSTConfig(
        num_input_channels=7,
        context_length=512,
        patch_length=12,
        patch_stride=12,
        prediction_length=96,
        d_model=128,
        num_attention_heads=16,
        ffn_dim=256,
        attn_implementation="eager",
    )
    return Attribute(PatchTSTForPrediction(config), "prediction_outputs")
