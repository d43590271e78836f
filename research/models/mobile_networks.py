"""Convolutional classifiers for phones that transformers has no configuration for."""

from __future__ import annotations

import torch
from torch import nn


def convolution(
    before: int,
    after: int,
    kernel: int = 1,
    stride: int = 1,
    groups: int = 1,
    activation: type[nn.Module] | None = nn.ReLU,
) -> nn.Sequential:
    """Convolution with borders, batch normalisation and an activation."""
    layers: list[nn.Module] = [
        nn.Conv2d(before, after, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(after),
    ]
    return nn.Sequential(*layers, *([activation()] if activation else []))


class SqueezeExcite(nn.Module):
    """Channels weighed by a function of their means."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, inner, 1)
        self.excite = nn.Conv2d(inner, channels, 1)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Features (N, C, H, W) to the same shape."""
        means = features.mean((2, 3), keepdim=True)
        return features * nn.functional.hardsigmoid(self.excite(torch.relu(self.squeeze(means))))


class InvertedResidual(nn.Module):
    """MobileNetV3's block: 1x1, depthwise, squeeze-and-excite, 1x1, and a shortcut where shapes agree."""

    def __init__(
        self, before: int, inner: int, after: int, kernel: int, stride: int, excite: bool, hard: bool
    ) -> None:
        super().__init__()
        activation = nn.Hardswish if hard else nn.ReLU
        layers: list[nn.Module] = []
        if inner != before:
            layers.append(convolution(before, inner, activation=activation))
        layers.append(convolution(inner, inner, kernel, stride, inner, activation))
        if excite:
            layers.append(SqueezeExcite(inner, max(8, inner // 4 // 8 * 8)))
        layers.append(convolution(inner, after, activation=None))
        self.body = nn.Sequential(*layers)
        self.shortcut = stride == 1 and before == after

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Features (N, C, H, W) to (N, after, H / stride, W / stride)."""
        result: torch.Tensor = self.body(features)
        return features + result if self.shortcut else result


# Kernel, inner channels, channels, squeeze-and-excite, hard swish, stride: table 1 of Howard et al., 2019.
_MOBILENET_V3_LARGE = (
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
)


def mobilenet_v3_stages() -> list[nn.Module]:
    """Stem and blocks of MobileNetV3-Large, one module each."""
    channels = 16
    layers: list[nn.Module] = [convolution(3, channels, 3, 2, activation=nn.Hardswish)]
    for kernel, inner, after, excite, hard, stride in _MOBILENET_V3_LARGE:
        layers.append(InvertedResidual(channels, inner, after, kernel, stride, excite, hard))
        channels = after
    return layers


def mobilenet_v3_large() -> nn.Module:
    """MobileNetV3-Large with 1000 classes."""
    head = [convolution(160, 960, activation=nn.Hardswish), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(
        *mobilenet_v3_stages(), *head, nn.Linear(960, 1280), nn.Hardswish(), nn.Linear(1280, 1000)
    )


class ShuffleUnit(nn.Module):
    """ShuffleNetV2's block: half of the channels pass, the others are convolved, then all are shuffled."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        half = after // 2
        self.split = stride == 1
        inner = half if self.split else before
        self.main = nn.Sequential(
            convolution(inner, half),
            convolution(half, half, 3, stride, half, None),
            convolution(half, half),
        )
        self.side: nn.Module = nn.Identity()
        if not self.split:
            self.side = nn.Sequential(
                convolution(before, before, 3, stride, before, None), convolution(before, half)
            )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Features (N, C, H, W) to (N, after, H / stride, W / stride)."""
        first, second = features.chunk(2, 1) if self.split else (features, features)
        both = torch.stack([self.side(first), self.main(second)], 2)
        return both.flatten(1, 2)


def shufflenet_v2() -> nn.Module:
    """ShuffleNetV2 1.0x with 1000 classes."""
    layers: list[nn.Module] = [convolution(3, 24, 3, 2), nn.MaxPool2d(3, 2, 1)]
    channels = 24
    for after, blocks in ((116, 4), (232, 8), (464, 4)):
        layers += [ShuffleUnit(channels, after, 2)] + [
            ShuffleUnit(after, after, 1) for _ in range(blocks - 1)
        ]
        channels = after
    layers += [convolution(channels, 1024), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 1000)]
    return nn.Sequential(*layers)


class Fire(nn.Module):
    """SqueezeNet's block: 1x1, then 1x1 and 3x3 side by side."""

    def __init__(self, before: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(before, squeezed, 1)
        self.narrow = nn.Conv2d(squeezed, expanded, 1)
        self.wide = nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Features (N, C, H, W) to (N, 2 expanded, H, W)."""
        squeezed = torch.relu(self.squeeze(features))
        return torch.relu(torch.cat([self.narrow(squeezed), self.wide(squeezed)], 1))


def squeezenet() -> nn.Module:
    """SqueezeNet 1.1 with 1000 classes."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 2), nn.ReLU()]
    channels = 64
    for stage in (((16, 64), (16, 64)), ((32, 128), (32, 128)), ((48, 192), (48, 192), (64, 256), (64, 256))):
        layers.append(nn.MaxPool2d(3, 2, ceil_mode=True))
        for squeezed, expanded in stage:
            layers.append(Fire(channels, squeezed, expanded))
            channels = 2 * expanded
    return nn.Sequential(
        *layers, nn.Conv2d(channels, 1000, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )


class DenseLayer(nn.Module):
    """DenseNet's layer: its result is appended to what it read."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            convolution(channels, 4 * growth),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Features (N, C, H, W) to (N, C + growth, H, W)."""
        return torch.cat([features, self.body(features)], 1)


def densenet_small() -> nn.Module:
    """DenseNet-BC with a growth of 16, blocks of 6, 12, 24 and 16 layers, 1000 classes."""
    growth, channels = 16, 32
    layers: list[nn.Module] = [convolution(3, channels, 7, 2), nn.MaxPool2d(3, 2, 1)]
    for stage, depth in enumerate((6, 12, 24, 16)):
        if stage:
            layers += [nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, channels // 2, 1, bias=False)]
            layers.append(nn.AvgPool2d(2))
            channels //= 2
        for _ in range(depth):
            layers.append(DenseLayer(channels, growth))
            channels += growth
    layers += [nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(channels, 1000))
