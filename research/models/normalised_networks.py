"""Networks whose norms are not folded into convolutions, and networks that pool to maxima."""

from __future__ import annotations

import itertools

import torch
from torch import nn


class TimedBlock(nn.Module):
    """The residual block of a diffusion model: group norms, and a shift by the step of the diffusion."""

    def __init__(self, before: int, after: int, step: int = 128, groups: int = 8) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.GroupNorm(groups, before), nn.SiLU(), nn.Conv2d(before, after, 3, padding=1)
        )
        self.second = nn.Sequential(
            nn.GroupNorm(groups, after), nn.SiLU(), nn.Conv2d(after, after, 3, padding=1)
        )
        self.shift = nn.Sequential(nn.SiLU(), nn.Linear(step, after))
        self.shortcut = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, features: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        """Features (N, before, H, W) and step (N, S) to (N, after, H, W)."""
        shifted = self.first(features) + self.shift(step)[:, :, None, None]
        result: torch.Tensor = self.second(shifted) + self.shortcut(features)
        return result


class DiffusionUnet(nn.Module):
    """The denoiser of a diffusion model for small images, without attention."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.step = nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, 128))
        self.open = nn.Conv2d(3, width, 3, padding=1)
        self.large, self.small = TimedBlock(width, width), TimedBlock(width, 2 * width)
        self.down = nn.ModuleList(nn.Conv2d(c, c, 3, 2, 1) for c in (width, 2 * width))
        self.middle = TimedBlock(2 * width, 4 * width)
        self.up_small, self.up_large = TimedBlock(6 * width, 2 * width), TimedBlock(3 * width, width)
        self.up = nn.Upsample(scale_factor=2)
        self.close = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1))

    def forward(self, image: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        """Image (N, 3, H, W) and the features of a step (N, 64) to the noise in the image."""
        step = self.step(step)
        large = self.large(self.open(image), step)
        small = self.small(self.down[0](large), step)
        middle = self.middle(self.down[1](small), step)
        up = self.up_small(torch.cat([self.up(middle), small], 1), step)
        result: torch.Tensor = self.close(self.up_large(torch.cat([self.up(up), large], 1), step))
        return result


def _reflected(before: int, after: int, kernel: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.ReflectionPad2d(kernel // 2),
        nn.Conv2d(before, after, kernel, stride),
        nn.InstanceNorm2d(after, affine=True),
        nn.ReLU(),
    )


class StyleTransfer(nn.Sequential):
    """A style transfer network: mirrored borders, instance norms, and a wide last layer of three channels."""

    def __init__(self) -> None:
        up = nn.Upsample(scale_factor=2)
        super().__init__(
            _reflected(3, 16, 9),
            _reflected(16, 32, 3, 2),
            _reflected(32, 64, 3, 2),
            *(_reflected(64, 64, 3) for _ in range(5)),
            up,
            _reflected(64, 32, 3),
            up,
            _reflected(32, 16, 3),
            nn.ReflectionPad2d(4),
            nn.Conv2d(16, 3, 9),
            nn.Tanh(),
        )


class PointNet(nn.Module):
    """Classes of point clouds: each point by itself, a learned rotation of the features, and their maxima."""

    def __init__(self, classes: int = 40) -> None:
        super().__init__()
        self.points, self.rotation = self._layers(3, 64, 64), self._layers(64, 64, 128, 512)
        self.rotate = nn.Sequential(nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 64 * 64))
        self.features = self._layers(64, 64, 128, 1024)
        self.classify = nn.Sequential(nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, classes))

    @staticmethod
    def _layers(*widths: int) -> nn.Sequential:
        pairs = itertools.pairwise(widths)
        return nn.Sequential(
            *(nn.Sequential(nn.Conv1d(b, a, 1), nn.BatchNorm1d(a), nn.ReLU()) for b, a in pairs)
        )

    def forward(self, cloud: torch.Tensor) -> torch.Tensor:
        """Points (N, 3, P) to scores (N, classes)."""
        points = self.points(cloud)
        rotation = self.rotate(self.rotation(points).amax(2)).reshape(-1, 64, 64)
        rotated = torch.bmm(points.transpose(1, 2), rotation).transpose(1, 2)
        result: torch.Tensor = self.classify(self.features(rotated).amax(2))
        return result


class GatedStage(nn.Module):
    """A residual stage with CBAM: gates of channels and of positions, each from means and maxima."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.channels = nn.Sequential(nn.Linear(after, after // 8), nn.ReLU(), nn.Linear(after // 8, after))
        self.positions = nn.Conv2d(2, 1, 7, padding=3)
        self.shortcut = nn.Conv2d(before, after, 1, stride)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Features (N, before, H, W) to (N, after, H / stride, W / stride)."""
        found = self.body(features)
        gate = torch.sigmoid(self.channels(found.mean((2, 3))) + self.channels(found.amax((2, 3))))
        found = found * gate[:, :, None, None]
        gate = torch.sigmoid(self.positions(torch.cat([found.mean(1, True), found.amax(1, True)], 1)))
        return torch.relu(found * gate + self.shortcut(features))


class GatedResNet(nn.Module):
    """A small classifier of gated stages."""

    def __init__(self, classes: int = 100) -> None:
        super().__init__()
        self.open = nn.Sequential(nn.Conv2d(3, 32, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.stages = nn.Sequential(
            *(GatedStage(b, a, s) for b, a, s in ((32, 32, 1), (32, 64, 2), (64, 128, 2), (128, 256, 2)))
        )
        self.classify = nn.Linear(256, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Image (N, 3, H, W) to scores (N, classes)."""
        result: torch.Tensor = self.classify(self.stages(self.open(image)).mean((2, 3)))
        return result
