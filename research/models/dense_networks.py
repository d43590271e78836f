"""Networks from images to images or boxes that transformers has no configuration for."""

from __future__ import annotations

import torch
from torch import nn

from research.models.mobile_networks import convolution, mobilenet_v3_stages
from research.models.zoo_model import ImageModel


class CrossStage(nn.Module):
    """YOLOv8's C2f: one half passes, the other runs through bottlenecks, and all steps are joined."""

    def __init__(self, before: int, after: int, count: int, shortcut: bool) -> None:
        super().__init__()
        half = after // 2
        self.shortcut = shortcut
        self.open = convolution(before, after, activation=nn.SiLU)
        self.steps = nn.ModuleList(
            nn.Sequential(
                convolution(half, half, 3, activation=nn.SiLU), convolution(half, half, 3, activation=nn.SiLU)
            )
            for _ in range(count)
        )
        self.close = convolution((2 + count) * half, after, activation=nn.SiLU)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Features (N, C, H, W) to (N, after, H, W)."""
        parts = list(self.open(features).chunk(2, 1))
        for step in self.steps:
            parts.append(parts[-1] + step(parts[-1]) if self.shortcut else step(parts[-1]))
        result: torch.Tensor = self.close(torch.cat(parts, 1))
        return result


class PooledPyramid(nn.Module):
    """YOLOv8's SPPF: the maxima of growing windows, joined."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.open = convolution(channels, channels // 2, activation=nn.SiLU)
        self.pool = nn.MaxPool2d(5, 1, 2)
        self.close = convolution(2 * channels, channels, activation=nn.SiLU)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Features (N, C, H, W) to the same shape."""
        parts = [self.open(features)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        result: torch.Tensor = self.close(torch.cat(parts, 1))
        return result


class YoloNano(nn.Module):
    """A detector with the shapes of YOLOv8n and its head without anchors: boxes and scores of 80 classes."""

    def __init__(self) -> None:
        super().__init__()

        def down(before: int, after: int) -> nn.Module:
            return convolution(before, after, 3, 2, activation=nn.SiLU)

        self.small = nn.Sequential(
            down(3, 16), down(16, 32), CrossStage(32, 32, 1, True), down(32, 64), CrossStage(64, 64, 2, True)
        )
        self.middle = nn.Sequential(down(64, 128), CrossStage(128, 128, 2, True))
        self.large = nn.Sequential(down(128, 256), CrossStage(256, 256, 1, True), PooledPyramid(256))
        self.up = nn.Upsample(scale_factor=2)
        self.up_middle, self.up_small = CrossStage(384, 128, 1, False), CrossStage(192, 64, 1, False)
        self.down_middle, self.down_large = down(64, 64), down(128, 128)
        self.out_middle, self.out_large = CrossStage(192, 128, 1, False), CrossStage(384, 256, 1, False)
        self.boxes = nn.ModuleList(self._head(channels, 64, 64) for channels in (64, 128, 256))
        self.scores = nn.ModuleList(self._head(channels, 80, 80) for channels in (64, 128, 256))
        self.bins: torch.Tensor
        self.register_buffer("bins", torch.arange(16.0))

    @staticmethod
    def _head(before: int, inner: int, after: int) -> nn.Module:
        layers = [
            convolution(before, inner, 3, activation=nn.SiLU),
            convolution(inner, inner, 3, activation=nn.SiLU),
        ]
        return nn.Sequential(*layers, nn.Conv2d(inner, after, 1))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Image (N, 3, H, W) to (N, 4 + 80, boxes)."""
        small = self.small(image)
        middle = self.middle(small)
        large = self.large(middle)
        middle = self.up_middle(torch.cat([self.up(large), middle], 1))
        small = self.up_small(torch.cat([self.up(middle), small], 1))
        middle = self.out_middle(torch.cat([self.down_middle(small), middle], 1))
        large = self.out_large(torch.cat([self.down_large(middle), large], 1))
        levels = (small, middle, large)
        boxes = torch.cat([head(one).flatten(2) for head, one in zip(self.boxes, levels, strict=True)], 2)
        scores = torch.cat([head(one).flatten(2) for head, one in zip(self.scores, levels, strict=True)], 2)
        chances = boxes.reshape(boxes.shape[0], 4, 16, -1).softmax(2)
        distances = (chances * self.bins[:, None]).sum(2)
        return torch.cat([distances, scores.sigmoid()], 1)


def yolo_nano() -> nn.Module:
    """A detector with the shapes of YOLOv8n."""
    return YoloNano()


class Backbone(nn.Module):
    """MobileNetV3-Large cut into a part until 1/8 of the resolution and one until 1/16.

    Args:
        head: takes both, (N, 40, H / 8, W / 8) and (N, 160, H / 16, W / 16).
    """

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        stages = mobilenet_v3_stages()
        self.early, self.late = nn.Sequential(*stages[:7]), nn.Sequential(*stages[7:])
        self.head = head

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Image (N, 3, H, W) to what the head makes."""
        early = self.early(image)
        result: torch.Tensor = self.head(early, self.late(early))
        return result


class PyramidHead(nn.Module):
    """DeepLabV3's head: dilated convolutions side by side, the mean of the image, and a resized result."""

    def __init__(self, channels: int = 160, classes: int = 21) -> None:
        super().__init__()
        self.branches = nn.ModuleList([convolution(channels, 256)])
        for rate in (6, 12, 18):
            self.branches.append(
                nn.Sequential(
                    nn.Conv2d(channels, 256, 3, padding=rate, dilation=rate, bias=False),
                    nn.BatchNorm2d(256),
                    nn.ReLU(),
                )
            )
        self.mean = nn.Sequential(nn.AdaptiveAvgPool2d(1), convolution(channels, 256))
        self.project = nn.Sequential(convolution(5 * 256, 256), convolution(256, 256, 3))
        self.classify = nn.Conv2d(256, classes, 1)

    def forward(self, early: torch.Tensor, late: torch.Tensor) -> torch.Tensor:
        """Features to scores at the resolution of the image."""
        size = late.shape[2:]
        mean = nn.functional.interpolate(self.mean(late), size, mode="bilinear")
        joined = torch.cat([*(branch(late) for branch in self.branches), mean], 1)
        scores = self.classify(self.project(joined))
        full = (early.shape[2] * 8, early.shape[3] * 8)
        return nn.functional.interpolate(scores, full, mode="bilinear")


class LightPyramidHead(nn.Module):
    """The head of LR-ASPP: a gate from the mean, and one shortcut from a higher resolution."""

    def __init__(self, classes: int = 21) -> None:
        super().__init__()
        self.features = convolution(160, 128)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(160, 128, 1, bias=False), nn.Sigmoid())
        self.low, self.high = nn.Conv2d(40, classes, 1), nn.Conv2d(128, classes, 1)

    def forward(self, early: torch.Tensor, late: torch.Tensor) -> torch.Tensor:
        """Features to scores at the resolution of the image."""
        gated = self.features(late) * self.gate(late)
        size = early.shape[2:]
        scores = self.low(early) + self.high(nn.functional.interpolate(gated, size, mode="bilinear"))
        return nn.functional.interpolate(scores, (size[0] * 8, size[1] * 8), mode="bilinear")


class BoxHead(nn.Module):
    """SSDLite's heads: depthwise-separable predictions at four resolutions, joined."""

    def __init__(self, classes: int = 91, boxes: int = 6) -> None:
        super().__init__()
        self.extra = nn.ModuleList(
            nn.Sequential(convolution(before, after // 2), convolution(after // 2, after, 3, 2))
            for before, after in ((160, 256), (256, 128))
        )
        self.heads = nn.ModuleList(
            nn.Sequential(
                convolution(channels, channels, 3, groups=channels, activation=nn.ReLU6),
                nn.Conv2d(channels, boxes * (classes + 4), 1),
            )
            for channels in (40, 160, 256, 128)
        )
        self.values = classes + 4

    def forward(self, early: torch.Tensor, late: torch.Tensor) -> torch.Tensor:
        """Features to (N, boxes, 4 + classes)."""
        levels = [early, late]
        for extra in self.extra:
            levels.append(extra(levels[-1]))
        found = []
        for head, one in zip(self.heads, levels, strict=True):
            predicted = head(one).permute(0, 2, 3, 1)
            found.append(predicted.reshape(predicted.shape[0], -1, self.values))
        return torch.cat(found, 1)


def deeplab_mobilenet() -> nn.Module:
    """DeepLabV3 over MobileNetV3-Large."""
    return Backbone(PyramidHead())


def lraspp_mobilenet() -> nn.Module:
    """LR-ASPP over MobileNetV3-Large."""
    return Backbone(LightPyramidHead())


def ssd_mobilenet() -> nn.Module:
    """SSDLite over MobileNetV3-Large, before boxes are suppressed."""
    return Backbone(BoxHead())


class UNet(nn.Module):
    """U-Net with four resolutions."""

    def __init__(self, widths: tuple[int, ...] = (16, 32, 64, 128), classes: int = 2) -> None:
        super().__init__()
        self.down, self.up, self.join = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        before = 3
        for width in widths:
            self.down.append(nn.Sequential(convolution(before, width, 3), convolution(width, width, 3)))
            before = width
        for width in reversed(widths[:-1]):
            self.up.append(nn.ConvTranspose2d(before, width, 2, 2))
            self.join.append(nn.Sequential(convolution(2 * width, width, 3), convolution(width, width, 3)))
            before = width
        self.classify = nn.Conv2d(before, classes, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Image (N, 3, H, W) to scores (N, classes, H, W)."""
        passed: list[torch.Tensor] = []
        for index, down in enumerate(self.down):
            image = down(nn.functional.max_pool2d(image, 2) if index else image)
            passed.append(image)
        passed.pop()
        for up, join in zip(self.up, self.join, strict=True):
            image = join(torch.cat([up(image), passed.pop()], 1))
        scores: torch.Tensor = self.classify(image)
        return scores


def unet_small() -> nn.Module:
    """A small U-Net."""
    return UNet()


def espcn() -> nn.Module:
    """ESPCN: three convolutions, then pixels from channels, four times the resolution."""
    return nn.Sequential(
        nn.Conv2d(1, 64, 5, padding=2),
        nn.Tanh(),
        nn.Conv2d(64, 32, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(32, 16, 3, padding=1),
        nn.PixelShuffle(4),
    )


class ResidualBlock(nn.Module):
    """EDSR's block: two convolutions without normalisation, and a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
        )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Features (N, C, H, W) to the same shape."""
        result: torch.Tensor = features + 0.1 * self.body(features)
        return result


def edsr_small() -> nn.Module:
    """EDSR with eight blocks of 32 channels, twice the resolution."""
    blocks = [ResidualBlock(32) for _ in range(8)]
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        *blocks,
        nn.Conv2d(32, 128, 3, padding=1),
        nn.PixelShuffle(2),
        nn.Conv2d(32, 3, 3, padding=1),
    )


def depth_anything_small() -> nn.Module:
    """Depth Anything over a DINOv2 backbone of 384 channels."""
    from transformers import DepthAnythingConfig, DepthAnythingForDepthEstimation, Dinov2Config

    backbone = Dinov2Config(
        hidden_size=384,
        num_attention_heads=6,
        image_size=224,
        out_indices=[3, 6, 9, 12],
        reshape_hidden_states=False,
        apply_layernorm=True,
        attn_implementation="eager",
    )
    config = DepthAnythingConfig(
        backbone_config=backbone,
        reassemble_hidden_size=384,
        neck_hidden_sizes=[48, 96, 192, 384],
        fusion_hidden_size=64,
    )
    return ImageModel(DepthAnythingForDepthEstimation(config), ("predicted_depth",))
