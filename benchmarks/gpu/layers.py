"""The layers that are measured beside NVIDIA's libraries: products, convolutions and attention of halves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import tvm

from tests.unit.schedules.cuda import attention_cases, mma_cases

# Rows, columns and depth of the products of models at batch 1: dense layers, and convolutions of 1 x 1.
_PRODUCTS = {
    "bert-base": ((128, 768, 768), (128, 3072, 768), (128, 768, 3072)),
    "vit-base": ((197, 2304, 768), (197, 768, 768), (197, 3072, 768), (197, 768, 3072)),
    "gpt2": ((64, 2304, 768), (64, 768, 3072)),
    "llama": ((1, 4096, 4096), (128, 4096, 4096), (128, 11008, 4096)),
    "resnet50": (
        (3136, 64, 64),
        (3136, 256, 64),
        (784, 512, 128),
        (196, 1024, 256),
        (196, 256, 1024),
        (49, 2048, 512),
        (49, 512, 2048),
    ),
    "mobilenetv2": (
        (12544, 16, 32),
        (3136, 144, 24),
        (784, 192, 32),
        (196, 384, 64),
        (196, 96, 576),
        (49, 960, 160),
        (49, 320, 960),
        (49, 1280, 320),
    ),
}
_BATCHES = (1, 8)
# Size of the image, depth, columns, kernel and stride of the other convolutions, one image.
_CONVOLUTIONS = {
    "resnet50": (
        (56, 64, 64, 3, 1),
        (56, 128, 128, 3, 2),
        (28, 128, 128, 3, 1),
        (14, 256, 256, 3, 1),
        (14, 512, 512, 3, 2),
        (7, 512, 512, 3, 1),
    ),
    "yolo": ((80, 32, 32, 3, 1), (40, 64, 64, 3, 1), (40, 64, 128, 3, 2), (20, 128, 128, 3, 1)),
}
# Heads, rows, columns and elements of a head of encoders; causal or not.
_ATTENTION = {
    "bert-base": (12, 128, 128, 64, False),
    "deit-small": (6, 197, 197, 64, False),
    "whisper-base": (8, 1500, 1500, 64, False),
    "whisper-base, across": (8, 64, 1500, 64, False),
    "prompt": (16, 2048, 2048, 128, True),
}


@dataclass(frozen=True)
class ProductSizes:
    """What a library needs to know of a product: [rows, depth] times [depth, columns]."""

    rows: int
    columns: int
    depth: int
    lanes: int
    kind: str = "product"


@dataclass(frozen=True)
class ConvolutionSizes:
    """The same of a convolution of one square image, padded to keep its size; a ReLU follows in ours."""

    size: int
    depth: int
    columns: int
    kernel: int
    stride: int
    lanes: int
    kind: str = "convolution"


@dataclass(frozen=True)
class AttentionSizes:
    """The same of attention over [1, rows or columns, heads, depth], with the scale depth**-0.5."""

    heads: int
    rows: int
    columns: int
    depth: int
    causal: bool
    kind: str = "attention"


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer.

    Attributes:
        name: of its model and sizes.
        function: unscheduled; the operands come first, the result last.
        sizes: for the libraries and the check.
    """

    name: str
    function: tvm.tirx.PrimFunc
    sizes: ProductSizes | ConvolutionSizes | AttentionSizes

    @property
    def multiply_adds(self) -> int:
        """Of one call, those with padding among them."""
        sizes = self.sizes
        if isinstance(sizes, ProductSizes):
            return sizes.rows * sizes.columns * sizes.depth
        if isinstance(sizes, AttentionSizes):
            return 2 * sizes.heads * sizes.rows * sizes.columns * sizes.depth
        out = (sizes.size + 2 * (sizes.kernel // 2) - sizes.kernel) // sizes.stride + 1
        return out * out * sizes.columns * sizes.kernel**2 * sizes.depth

    def described(self) -> dict[str, Any]:
        """The sizes, as plain data."""
        return asdict(self.sizes)


def product(model: str, rows: int, columns: int, depth: int) -> Layer:
    """A product with packed weights, rounded to halves."""
    lanes = _lanes(columns)
    function = mma_cases.product(
        (rows, depth),
        (columns // lanes, depth, lanes),
        (rows, columns),
        depth,
        (lambda i, j, k: (i, k), lambda i, j, k: (j // lanes, k, j % lanes)),
        lambda result, i, j: result[i, j].astype("float16"),
    )
    name = f"{model} product {rows}x{columns}x{depth}"
    return Layer(name, function, ProductSizes(rows, columns, depth, lanes))


def convolution(model: str, size: int, depth: int, columns: int, kernel: int, stride: int) -> Layer:
    """A convolution with channels last and packed weights, and a ReLU."""
    lanes = _lanes(columns)
    function = mma_cases.convolution(size, depth, columns, kernel, stride, lanes)
    name = f"{model} convolution {kernel}x{kernel}/{stride} {size}x{size}x{depth} to {columns}"
    return Layer(name, function, ConvolutionSizes(size, depth, columns, kernel, stride, lanes))


def attention(model: str, heads: int, rows: int, columns: int, depth: int, causal: bool) -> Layer:
    """Attention without a mask, or with a causal one."""
    case = attention_cases.Case(
        heads=heads,
        rows=rows,
        columns=columns,
        depth=depth,
        width=depth,
        causal=0 if causal else None,
        scale=depth**-0.5,
    )
    name = f"{model} attention {heads}x{rows}x{columns}x{depth}{', causal' if causal else ''}"
    return Layer(name, case.function(), AttentionSizes(heads, rows, columns, depth, causal))


def all_layers() -> Iterator[Layer]:
    """Every layer: products at both batches, then convolutions and attention."""
    for batch in _BATCHES:
        for model, shapes in _PRODUCTS.items():
            for rows, columns, depth in shapes:
                yield product(model, batch * rows, columns, depth)
    for model, sizes in _CONVOLUTIONS.items():
        for each in sizes:
            yield convolution(model, *each)
    for model, each in _ATTENTION.items():
        yield attention(model, *each)


def _lanes(columns: int) -> int:
    return next(lanes for lanes in (32, 16, 8) if columns % lanes == 0)
