"""Networks of the zoo that no library here has a configuration for."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn


def mlp() -> nn.Module:
    """Two-layer perceptron, 784 -> 512 -> 10."""
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))


def dcgan_generator() -> nn.Module:
    """Generator of a DCGAN: 100x1x1 noise to a 3x64x64 image by transposed convolutions."""
    widths = (100, 512, 256, 128, 64)
    layers: list[nn.Module] = []
    for index, (before, after) in enumerate(pairwise(widths)):
        stride, padding = (1, 0) if index == 0 else (2, 1)
        layers.append(nn.ConvTranspose2d(before, after, 4, stride, padding, bias=False))
        layers += [nn.BatchNorm2d(after), nn.ReLU()]
    layers += [nn.ConvTranspose2d(widths[-1], 3, 4, 2, 1, bias=False), nn.Tanh()]
    return nn.Sequential(*layers)


class GroupedBottleneck(nn.Module):
    """ResNeXt's block: 1x1, grouped 3x3, 1x1, with a shortcut."""

    def __init__(self, channels: int, width: int, out: int, stride: int, groups: int = 32) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, groups=groups, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, out, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Features (N, C, H, W) to (N, out, H / stride, W / stride)."""
        return torch.relu(self.body(features) + self.shortcut(features))


def resnext50() -> nn.Module:
    """ResNeXt-50 32x4d with 1000 classes."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    channels = 64
    for stage, depth in enumerate((3, 4, 6, 3)):
        width, out = 128 * 2**stage, 256 * 2**stage
        for block in range(depth):
            layers.append(GroupedBottleneck(channels, width, out, 2 if block == 0 and stage > 0 else 1))
            channels = out
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)]
    return nn.Sequential(*layers)


class LstmTagger(nn.Module):
    """Embedding, one LSTM layer, and a tag for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 32)
        self.lstm = nn.LSTM(32, 64, batch_first=True)
        self.head = nn.Linear(64, 12)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens (N, T) int64 to scores (N, T, 12)."""
        hidden, _ = self.lstm(self.embedding(tokens))
        scores: torch.Tensor = self.head(hidden)
        return scores


def lstm_tagger() -> nn.Module:
    """A small recurrent model."""
    return LstmTagger()


class RecurrentClassifier(nn.Module):
    """Two recurrent layers over frames of sound, and scores of the last frame."""

    def __init__(self, layer: type[nn.GRU | nn.LSTM], bidirectional: bool) -> None:
        super().__init__()
        self.recurrent = layer(40, 128, 2, batch_first=True, bidirectional=bidirectional)
        self.head = nn.Linear(256 if bidirectional else 128, 12)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """Frames (N, T, 40) to scores (N, 12)."""
        scores: torch.Tensor = self.head(self.recurrent(frames)[0][:, -1])
        return scores


def gru_keywords() -> nn.Module:
    """A keyword spotter."""
    return RecurrentClassifier(nn.GRU, bidirectional=False)


def lstm_speech() -> nn.Module:
    """The same with LSTM in both directions."""
    return RecurrentClassifier(nn.LSTM, bidirectional=True)


class DilatedPyramid(nn.Module):
    """Segmentation by dilated convolutions of one small image side by side (ASPP, as in DeepLabV3)."""

    def __init__(self, rates: tuple[int, ...] = (12, 24, 36)) -> None:
        super().__init__()
        widths = (3, 16, 32, 96, 320)
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Conv2d(before, after, 3, 2, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
        self.backbone = nn.Sequential(*layers)
        self.branches = nn.ModuleList([self._branch(1, 0)] + [self._branch(3, rate) for rate in rates])
        self.head = nn.Conv2d(256 * len(self.branches), 21, 1)

    def _branch(self, kernel: int, rate: int) -> nn.Module:
        convolution = nn.Conv2d(320, 256, kernel, padding=rate, dilation=max(1, rate), bias=False)
        return nn.Sequential(convolution, nn.BatchNorm2d(256), nn.ReLU())

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Image (N, 3, H, W) to scores (N, 21, H / 16, W / 16)."""
        features = self.backbone(image)
        scores: torch.Tensor = self.head(torch.cat([branch(features) for branch in self.branches], 1))
        return scores
