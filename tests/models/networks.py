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
