"""The one-dimensional transforms of F(2, 3) and F(4, 3), written out as sums.

A tile of `m` outputs of a convolution with 3 taps needs `m + 2` products instead of `3 m`:
y = A' ((G g) * (B' d)), two-dimensional by applying each transform to columns and then to rows (Winograd
1980; Lavin and Gray, arXiv 1509.09308). The matrices follow from the points at which polynomials are
evaluated (Cook-Toom). F(4, 3) uses 0, +-sqrt(1/2), +-sqrt(2) and infinity: four to five times as accurate in
fp32 as 0, +-1, +-2, since powers of the points stay near one (maximum error 2e-6 of the largest result for
256 channels, against 1e-5). The constants 1 / prod(p_i - p_j), which belong to G, are applied with A'
instead: then transforming the weights takes no multiplications besides those of fused multiply-adds.

Everything here is plain arithmetic, so that it serves numbers, arrays and TensorIR expressions alike.
Sums that several results share are written again for each: the compiler finds them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Taps = Sequence[Any]

_NEAR, _FAR = math.sqrt(0.5), math.sqrt(2.0)
# 1 / prod(p_i - p_j) of the points +-near and +-far.
_NEAR_SCALE, _FAR_SCALE = -2.0 / 3.0, 1.0 / 6.0


@dataclass(frozen=True)
class Transform:
    """F(m x m, 3 x 3).

    Attributes:
        outputs: m, results along each side of a tile.
        input: `m + 2` values of the transformed input from `m + 2` inputs.
        weight: `m + 2` values of the transformed weights from 3 taps.
        output: `m` results from `m + 2` products.
        input_operations, weight_operations, output_operations: arithmetic of one of them, each shared sum
            once, a multiply-add as one.
    """

    outputs: int
    input: Callable[[Taps], list[Any]]
    weight: Callable[[Taps], list[Any]]
    output: Callable[[Taps], list[Any]]
    input_operations: int
    weight_operations: int
    output_operations: int

    @property
    def size(self) -> int:
        """Values along each side of a transformed tile."""
        return self.outputs + 2


def _input2(d: Taps) -> list[Any]:
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]


def _weight2(g: Taps) -> list[Any]:
    even = g[0] + g[2]
    return [g[0], even + g[1], even - g[1], g[2]]


def _output2(v: Taps) -> list[Any]:
    return [(v[1] + v[2]) * 0.5 + v[0], (v[1] - v[2]) * 0.5 - v[3]]


def _input4(d: Taps) -> list[Any]:
    near_even, near_odd = d[4] - d[2] * 2.0, d[3] - d[1] * 2.0
    far_even, far_odd = d[4] - d[2] * 0.5, d[3] - d[1] * 0.5
    return [
        d[0] - d[2] * 2.5 + d[4],
        near_even + near_odd * _NEAR,
        near_even - near_odd * _NEAR,
        far_even + far_odd * _FAR,
        far_even - far_odd * _FAR,
        d[1] - d[3] * 2.5 + d[5],
    ]


def _weight4(g: Taps) -> list[Any]:
    near, far = g[0] + g[2] * 0.5, g[0] + g[2] * 2.0
    return [
        g[0],
        near + g[1] * _NEAR,
        near - g[1] * _NEAR,
        far + g[1] * _FAR,
        far - g[1] * _FAR,
        g[2],
    ]


def _output4(v: Taps) -> list[Any]:
    near_sum, near_difference = v[1] + v[2], v[1] - v[2]
    far_sum, far_difference = v[3] + v[4], v[3] - v[4]
    near, far = _NEAR_SCALE * _NEAR, _FAR_SCALE * _FAR
    return [
        v[0] + near_sum * _NEAR_SCALE + far_sum * _FAR_SCALE,
        near_difference * near + far_difference * far,
        near_sum * (_NEAR_SCALE * 0.5) + far_sum * (_FAR_SCALE * 2.0),
        near_difference * (near * 0.5) + far_difference * (far * 2.0) + v[5],
    ]


# By outputs along each side of a tile.
TILES = {
    2: Transform(2, _input2, _weight2, _output2, 4, 3, 4),
    4: Transform(4, _input4, _weight4, _output4, 12, 6, 12),
}
