"""A small network with a 3x3 convolution, and its space of plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import relax
from tvm.relax.op import nn

from host.lowering import lower
from host.model import LoweredModel
from host.plans.estimate import PlanEstimator
from host.plans.proposers import Space
from tests.unit.lowering.harness import board, imported, normal, relax_module, weight
from tests.unit.tuning.simulated import profile

INPUTS = [normal(1, 16, 16, 8)]
_LAYOUT = {"padding": (1, 1, 1, 1), "data_layout": "NHWC", "out_layout": "NHWC"}


def network(builder: relax.BlockBuilder, x: relax.Expr) -> Any:
    """A convolution, which leaves its algorithm and its packing open."""
    return builder.emit(nn.relu(builder.emit(nn.conv2d(x, weight(16, 8, 3, 3, seed=1), **_LAYOUT))))


def two_layers(builder: relax.BlockBuilder, x: relax.Expr) -> Any:
    """The network, and a convolution of what it makes."""
    made = network(builder, x)
    return builder.emit(nn.conv2d(made, weight(16, 16, 3, 3, seed=2), **_LAYOUT))


def strided_second_layer(builder: relax.BlockBuilder, x: relax.Expr) -> Any:
    """The network, and a convolution of what it makes that Winograd's algorithm does not apply to."""
    made = network(builder, x)
    return builder.emit(nn.conv2d(made, weight(16, 16, 3, 3, seed=2), strides=(2, 2), **_LAYOUT))


MODEL = imported(relax_module(network, INPUTS))
TWO_LAYERS = imported(relax_module(two_layers, INPUTS))
STRIDED_SECOND_LAYER = imported(relax_module(strided_second_layer, INPUTS))


def lowered(decisions: Mapping[str, int] | None = None) -> LoweredModel:
    """The network with decisions of a plan."""
    return lower(MODEL, board(), decisions=decisions)


def space() -> Space:
    """Its plans on an x86-64 processor."""
    return Space(lowered, lowered(), PlanEstimator(profile()))
