"""How weights of groups lie in memory, for the instructions of a processor.

The products of a group, mostly 32 elements of a row of a weight (N, K), are summed as integers. Rows are
outputs, and L of them are one panel: each 32-bit lane of its vectors belongs to an output. The elements of a
group are taken `width` at a time, as many as the processor's instruction multiplies and adds up for each
lane. Where instructions widen ("widening"), lanes are bytes, whose products are summed in lanes of 16 bits.

    8 bits   (panels, groups, group / width, L, width) int8
    4 bits   (panels, groups, group / width / 2, L, width) uint8: the low half of a byte is of an even step,
             the high half of the step behind it, both 8 more than the number where weights are symmetric;
             with `signed_high`, the high half is the number itself, in two's complement; where instructions
             widen, both halves are, of symmetric weights the number and of others 8 less than it

Where matrices are multiplied, a vector of a step has eight elements of two outputs, and an instruction takes
them with two rows of activations, or with both bytes of those of one row (`planes_together`).

One group or several in a row are a block, which has a scale. A weight has the values

    number * scale                                                            symmetric
    (number - zero) * scale                                                   with zero points
    number * scale * multiplier + minimum * multiplier of the minimum         with minima

where blocks have zero points (int8) or minima (float16), and groups have multipliers (int8) of the scale and
of the minimum of their block, as in the K types of GGML. Half bytes of symmetric weights are from -8 to 7,
others from 0 to 15. Scales are (panels, blocks, L) float16, or float32 in files that have them so, and the
others lie alike, with groups or blocks. Panels that are not full have rows of zeros.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from targets import HardwareModel

GROUP = 32
# The largest number that an activation is rounded to, by its bits. Two bytes with sign hold one of 16 bits as
# high * 256 + low.
LARGEST = {8: 127, 16: 127 * 256 + 127}
# With "widening", high * 128 + low: low is from -64 to 63, so that sums of its products fit 16 bits too.
LARGEST_WIDENED = 127 * 128 + 63
# With `WeightLayout.joined`: 17 times this number has 16 bits.
LARGEST_JOINED = LARGEST[16] // 17
# What a stored half byte is more than its number; also of whole bytes where an instruction takes no sign.
HALF_OFFSET, BYTE_OFFSET = 8, 128
# Of `WeightLayout.instruction`.
MATRICES = "s8s8_matrices"
# What blocks of weights that are not symmetric have beside their scales.
ZERO, MINIMUM = "zero", "minimum"


@dataclass(frozen=True)
class WeightLayout:
    """The form of weights that one kind of processor wants.

    Attributes:
        bits: of an element, 4 or 8.
        lanes: outputs of a panel, L: those of one vector, or of four where bytes with signs are multiplied,
            and of two where matrices of them are; with "widening", those of one vector of bytes, or of two
            vectors of half bytes.
        instruction: how products of a group are added up: "u8s8" (four unsigned bytes by signed ones), "s8s8"
            (four signed bytes), "s8s8_matrices" (eight signed bytes of two outputs by those of two rows),
            "u4s8" (four half bytes by signed bytes, summed in 16 bits), "s16s16" (two numbers of 16 bits),
            "widening" (signed bytes one by one, each with a lane of 16 bits), or "plain" (one by one, in
            lanes of 32 bits).
        group: elements of a group, 16 or a multiple of it.
        asymmetry: "zero", "minimum", or "" of symmetric weights.
        multiplied: whether groups have multipliers.
        rounding: bits that activations are rounded to, 16, or 8 where bytes are multiplied.
        halved: whether activations and weights may be numbers of bfloat16 in place of that, in registers of
            matrices.
    """

    bits: int
    lanes: int
    instruction: str
    group: int = GROUP
    asymmetry: str = ""
    multiplied: bool = False
    rounding: int = 16
    halved: bool = False

    @classmethod
    def of(
        cls,
        bits: int,
        hardware: HardwareModel,
        group: int = GROUP,
        asymmetry: str = "",
        multiplied: bool = False,
        rounding: int = 16,
        halved: bool = False,
    ) -> WeightLayout:
        """The layout for a processor; `rounding` to 8 bits is for those whose instructions multiply bytes."""
        kind = hardware.dot_product
        if kind == "s16s16" and bits == 4:
            # Sums of two products of half bytes fit 16 bits, so that bytes are multiplied as they are.
            kind = "u4s8"
        if kind == "s8s8" and hardware.byte_matrices:
            kind = MATRICES
        # Every processor with vectors has such instructions: SMLAL of Arm, VWMACC of RISC-V.
        kind = kind or ("widening" if hardware.lanes > 1 else "plain")
        # Four vectors side by side are loaded in pairs, and so are their scales. Sums of matrices of four
        # rows and two vectors of outputs stay in registers beside the totals of two panels.
        vectors = {"s8s8": 4, MATRICES: 2, "widening": 8 if bits == 4 else 4}.get(kind, 1)
        made = cls(bits, max(4, vectors * hardware.lanes), kind, group, asymmetry, multiplied)
        halved = halved and hardware.has_bfloat16_tiles
        return replace(made, rounding=rounding, halved=halved) if made.activations == "int8" else made

    @property
    def width(self) -> int:
        """Elements that go to one lane in one step."""
        return {"u8s8": 4, "s8s8": 4, MATRICES: 8, "u4s8": 4, "s16s16": 2}.get(self.instruction, 1)

    @property
    def steps(self) -> int:
        """Steps of a group."""
        return self.group // self.width

    @property
    def vectors(self) -> int:
        """Vectors of bytes of a group."""
        return self.steps // 2 if self.bits == 4 else self.steps

    @property
    def offset(self) -> int:
        """The difference between stored elements and their numbers."""
        if self.bits == 4 and self.widens:
            return -HALF_OFFSET if self.asymmetry else 0
        if self.bits == 4:
            return 0 if self.asymmetry else HALF_OFFSET
        return BYTE_OFFSET if self.instruction == "u8s8" else 0

    @property
    def stored(self) -> str:
        """Type of the bytes in memory."""
        return "uint8" if self.bits == 4 or self.offset else "int8"

    @property
    def activations(self) -> str:
        """Type of the numbers that weights are multiplied with."""
        return "int8" if self.width >= 4 or self.widens else "int16"

    @property
    def planes(self) -> int:
        """Numbers that a rounded activation is made of: two bytes, the first one counting `base`, or one."""
        return 2 if self.activations == "int8" and self.rounding == 16 else 1

    @property
    def planes_together(self) -> bool:
        """Whether both planes of a step lie side by side, as the rows of one matrix."""
        return self.multiplies_matrices and self.planes == 2

    @property
    def base(self) -> int:
        """What the first of two planes counts."""
        return 128 if self.widens else 256

    @property
    def widens(self) -> bool:
        """Whether the products of bytes are summed in lanes of 16 bits."""
        return self.instruction == "widening"

    @property
    def multiplies_matrices(self) -> bool:
        """Whether an instruction takes two rows of activations, or both planes of one, for two outputs."""
        return self.instruction == MATRICES

    @property
    def takes_signs(self) -> bool:
        """Whether bytes with signs are multiplied by each other, and summed in 32 bits."""
        return self.instruction in ("s8s8", MATRICES)

    @property
    def signed_high(self) -> bool:
        """Whether a byte, taken with its sign, is its low half and 16 times the number of its high half."""
        return self.bits == 4 and self.takes_signs and not self.asymmetry

    @property
    def joined(self) -> bool:
        """Whether whole bytes are multiplied in place of their high halves, which then need no shift.

        Of low halves u with activations a, and numbers n of the high halves with activations b, 16 times the
        products are u (16 a - b) + (u + 16 n) b. Activations have 12 bits, as 16 a - b has 16.
        """
        return self.signed_high and self.rounding == 16

    @property
    def largest(self) -> int:
        """The largest number that an activation is rounded to."""
        if self.widens and self.planes == 2:
            return LARGEST_WIDENED
        return LARGEST_JOINED if self.joined else LARGEST[self.rounding]

    @property
    def sums_start(self) -> bool:
        """Whether the products of a group start from what the offset of stored elements adds to them."""
        added = self.rounding == 8 or self.takes_signs
        return added and bool(self.offset) and not self.asymmetry

    @property
    def further(self) -> tuple[str, ...]:
        """What an operation gets behind the weight and its scales, in this order."""
        multipliers = ("multipliers",) if self.multiplied else ()
        if self.asymmetry == ZERO:
            return (*multipliers, "zeros")
        if self.asymmetry == MINIMUM:
            return (*multipliers, "minima", *(("minimum_multipliers",) if self.multiplied else ()))
        return multipliers

    def packed(self, weight: np.ndarray) -> np.ndarray:
        """A weight as it lies in memory.

        Args:
            weight: (N, K / 2) uint8 with the element of the even column in the low half, or (N, K) int8.
        """
        rows = _filled(weight, self.lanes, fill=0x88 if self.bits == 4 else 0)
        numbers = rows
        if self.bits == 4:
            numbers = np.stack([rows & 15, rows >> 4], axis=-1).reshape(rows.shape[0], -1)
        elif self.offset:
            numbers = (rows.astype(np.int16) + self.offset).astype(np.uint8)
        panels, groups = numbers.shape[0] // self.lanes, numbers.shape[1] // self.group
        split = numbers.reshape(panels, self.lanes, groups, self.steps, self.width)
        ordered = split.transpose(0, 2, 3, 1, 4)
        if self.bits == 8:
            return np.ascontiguousarray(ordered)
        low = ordered[:, :, 0::2] ^ (HALF_OFFSET if self.widens else 0)
        high = ordered[:, :, 1::2] ^ (HALF_OFFSET if self.signed_high or self.widens else 0)
        return np.ascontiguousarray(low | (high << 4))

    def packed_scales(self, scales: np.ndarray) -> np.ndarray:
        """Scales (N, blocks), or other numbers of blocks or groups, as they lie in memory."""
        rows = _filled(scales, self.lanes, fill=0)
        return np.ascontiguousarray(rows.reshape(-1, self.lanes, rows.shape[1]).transpose(0, 2, 1))


def _filled(rows: np.ndarray, multiple: int, fill: int) -> np.ndarray:
    """Rows up to a multiple."""
    missing = -rows.shape[0] % multiple
    if not missing:
        return rows
    padding: Any = ((0, missing), (0, 0))
    return np.pad(rows, padding, constant_values=fill)
