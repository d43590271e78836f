"""The model files of cold deployments: of the zoo, and VGG11, whose weights are larger than all else."""

from __future__ import annotations

from pathlib import Path

VGG11 = "vgg11"
# Channels of the convolutions; 0 is pooling by two (arXiv 1409.1556, table 1, column A).
_LAYERS = (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0)
_HIDDEN, _CLASSES = 4096, 1000


def model_file(name: str, folder: Path) -> Path:
    """An ONNX file with seeded random weights; one that is there is kept.

    Args:
        name: `VGG11`, or a model of the zoo.
        folder: of the file.

    Raises:
        KeyError: no such model.
    """
    from research.models.export import export

    return _vgg11(folder / f"{name}.onnx") if name == VGG11 else export(name, folder, "onnx")


def _vgg11(path: Path) -> Path:
    """VGG11 for one image of 224 x 224: 133 million weights, 531 MB."""
    import torch
    from torch import nn

    from research.models.export import export_onnx_model

    if path.is_file():
        return path
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    channels = 3
    for wanted in _LAYERS:
        if wanted:
            layers += [nn.Conv2d(channels, wanted, 3, padding=1), nn.ReLU()]
            channels = wanted
        else:
            layers.append(nn.MaxPool2d(2))
    layers += [nn.Flatten(), nn.Linear(channels * 7 * 7, _HIDDEN), nn.ReLU()]
    layers += [nn.Linear(_HIDDEN, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, _CLASSES)]
    module = nn.Sequential(*layers).eval().requires_grad_(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    export_onnx_model(module, (torch.randn(1, 3, 224, 224),), ("pixel_values",), ("logits",), partial)
    return partial.rename(path)
