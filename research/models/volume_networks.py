"""Networks whose convolutions have other shapes than images: volumes of video, frames of speech."""

from __future__ import annotations

import torch
from torch import nn


def video_classifier() -> nn.Module:
    """3x3x3 convolutions over 16 frames of 112x112, as in the first stages of C3D and R3D."""
    return nn.Sequential(
        _volume(3, 32, (1, 2, 2)),
        _volume(32, 64, 2),
        _volume(64, 64, 1),
        _volume(64, 128, 2),
        _volume(128, 128, 1),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def _volume(before: int, after: int, stride: int | tuple[int, int, int]) -> nn.Module:
    convolution = nn.Conv3d(before, after, 3, stride, 1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm3d(after), nn.ReLU())


class ConformerBlock(nn.Module):
    """Half a feed-forward layer, attention, a gated depthwise convolution, and the other half.

    Gulati et al., "Conformer", 2020, without relative positions.
    """

    def __init__(self, width: int, heads: int, kernel: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = _feed_forward(width), _feed_forward(width)
        self.attention_norm = nn.LayerNorm(width)
        self.queries_keys_values, self.attended = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.convolution_norm = nn.LayerNorm(width)
        self.gated = nn.Conv1d(width, 2 * width, 1)
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.scale, self.convolved = nn.BatchNorm1d(width), nn.Conv1d(width, width, 1)
        self.norm = nn.LayerNorm(width)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """Frames (N, T, width) to frames of the same shape."""
        frames = frames + 0.5 * self.before(frames)
        frames = frames + self._attend(self.attention_norm(frames))
        mixed = nn.functional.glu(self.gated(self.convolution_norm(frames).transpose(1, 2)), 1)
        mixed = nn.functional.silu(self.scale(self.depthwise(mixed)))
        frames = frames + self.convolved(mixed).transpose(1, 2)
        result: torch.Tensor = self.norm(frames + 0.5 * self.after(frames))
        return result

    def _attend(self, frames: torch.Tensor) -> torch.Tensor:
        batch, length, width = frames.shape
        split = self.queries_keys_values(frames).reshape(batch, length, 3, self.heads, width // self.heads)
        queries, keys, values = split.permute(2, 0, 3, 1, 4).unbind(0)
        scores = (queries @ keys.transpose(-1, -2)) * (width // self.heads) ** -0.5
        found = scores.softmax(-1) @ values
        result: torch.Tensor = self.attended(found.transpose(1, 2).reshape(batch, length, width))
        return result


def _feed_forward(width: int) -> nn.Module:
    wide, narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
    return nn.Sequential(nn.LayerNorm(width), wide, nn.SiLU(), narrow)


class Conformer(nn.Module):
    """An encoder of speech: a quarter of the frames by two convolutions, then six blocks."""

    def __init__(self, bands: int = 80, width: int = 144) -> None:
        super().__init__()
        first, second = nn.Conv2d(1, width, 3, 2), nn.Conv2d(width, width, 3, 2)
        self.quarter = nn.Sequential(first, nn.ReLU(), second, nn.ReLU())
        left = ((bands - 1) // 2 - 1) // 2
        self.joined = nn.Linear(width * left, width)
        self.blocks = nn.Sequential(*[ConformerBlock(width, 4, 31) for _ in range(6)])

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """Frames (N, T, bands) to frames (N, about T / 4, width)."""
        seen = self.quarter(frames[:, None])
        result: torch.Tensor = self.blocks(self.joined(seen.transpose(1, 2).flatten(2)))
        return result
