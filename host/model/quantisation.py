"""The figures of quantising a model, or of mixing types: plain data that results, reports and pages show."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class OutputError:
    """How far an output of the quantised model is from that of the model in floats, over samples.

    Attributes:
        name: of the output.
        rms: ||q - f|| / ||f||, the noise over the signal; of integers the share of elements that differ.
        largest: max|q - f| / max|f|.
        cosine: of the angle between q and f; None of integers.
        agreement: share of the rows whose largest element is the same; None where rows are not of classes.
    """

    name: str
    rms: float
    largest: float
    cosine: float | None = None
    agreement: float | None = None

    @property
    def snr_db(self) -> float:
        """Signal over noise in decibels, -20 log10(rms); infinite without noise."""
        return -20.0 * math.log10(self.rms) if self.rms > 0 else math.inf


@dataclass(frozen=True)
class QuantisedLayer:
    """A convolution or a product with constant weights.

    Attributes:
        name: of the node in the model file.
        operator: Conv, ConvTranspose, Gemm or MatMul.
        multiply_adds: of one run.
        weights: number of them.
        alone: rms of the outputs where only this layer is quantised, or its group.
        quantised: whether it is, in the model that was made.
    """

    name: str
    operator: str
    multiply_adds: int
    weights: int
    alone: float = 0.0
    quantised: bool = True


@dataclass(frozen=True)
class FrontPoint:
    """The model with some layers left in the wider type, and the largest error of its outputs.

    Attributes:
        kept: number of these layers.
        wide_share: share of the layers' multiply-adds, or of the layers where those are not counted.
        error: of the output with the largest one.
        taken: whether this is the model that was made.
        estimate_s: estimated seconds of a run; None where there is no estimate.
    """

    kept: int
    wide_share: float
    error: float
    taken: bool = False
    estimate_s: float | None = None


@dataclass(frozen=True)
class Quantisation:
    """How a model was quantised, and what that loses.

    Attributes:
        original: the model in floats with its shapes pinned, for the comparison.
        dtype: of the activations, "uint8" or "int8"; weights are "int8" with a scale for each channel.
        samples: of the calibration.
        compared: samples that errors of the whole model are over.
        bound: the largest rms that was allowed.
        errors: of each output of the model that was made.
        fully: of each output with every layer quantised.
        layers: in the order of the model.
        front: what the search measured, by the number of layers kept.
        group: layers whose error was measured together; 1 for each by itself.
    """

    original: Path
    dtype: str
    samples: int
    compared: int
    bound: float
    errors: tuple[OutputError, ...]
    fully: tuple[OutputError, ...]
    layers: tuple[QuantisedLayer, ...]
    front: tuple[FrontPoint, ...]
    group: int = 1

    @property
    def rms(self) -> float:
        """The relative error (RMS) of the output with the largest one."""
        return worst(self.errors)

    @property
    def kept(self) -> tuple[QuantisedLayer, ...]:
        """The layers that stay as they are, those that lose most first."""
        return tuple(one for one in self.by_loss() if not one.quantised)

    def by_loss(self) -> tuple[QuantisedLayer, ...]:
        """The layers, those that lose most alone first."""
        return tuple(sorted(self.layers, key=lambda one: -one.alone))


def worst(errors: tuple[OutputError, ...]) -> float:
    """The largest rms of several outputs."""
    return max((one.rms for one in errors), default=0.0)
