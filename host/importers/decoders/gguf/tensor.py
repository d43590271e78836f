"""One tensor of a GGUF file, in the form that a folder of transformers has it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from device_agent.contract.text import printable
from host.errors import ModelFileError
from host.importers.decoders.gguf.blocks import WHOLE, values, whole
from host.importers.decoders.gguf.header import BLOCKS
from host.importers.decoders.quantise import Quantised, quantise
from host.importers.decoders.safetensors_file import StoredTensor


@dataclass(frozen=True)
class GgufTensor(StoredTensor):
    """Where one tensor lies, and what the converter has done to it.

    Attributes:
        heads: whose rows are ordered for a rotation of neighbours; 0 for none.
        offset: that has been added to the values.
    """

    heads: int = 0
    offset: float = 0.0

    @property
    def bits(self) -> int:
        """Bits that hold its whole numbers: 4 or 8; 0 of floating point."""
        return WHOLE.get(self.dtype, 8) if self._blocks and BLOCKS[self.dtype][0] > 1 else 0

    @property
    def is_changed(self) -> bool:
        """Whether the form that is deployed has other values than the file."""
        return self.bits != 0 and self.dtype not in WHOLE

    @property
    def _blocks(self) -> bool:
        return self.dtype in BLOCKS

    def read(self, name: str) -> np.ndarray:
        """The values as float32; see `StoredTensor.read`."""
        if not self._blocks:
            raise ModelFileError(
                f"{self.path.name}: weight {printable(name, 100)!r} has type {printable(self.dtype, 20)}; "
                f"{', '.join(BLOCKS)} are read: give a file of one of these, such as Q4_0 or Q8_0"
            )
        found = self._stored(name) if self.bits else super().read(name)
        found = self._ordered(found)
        return found - np.float32(self.offset) if self.offset else found

    def quantised(self, name: str, bits: int) -> Quantised:
        """The values as whole numbers with a scale for each 32.

        Types of `WHOLE` keep every value. The others have a least value for each 32, or a scale for each 16,
        and are rounded to 8 bits: float32 would take four times the memory, and the rounding is by at most
        1/254 of a group's largest value, a small part of what they were rounded by before.

        Args:
            name: of the tensor, for messages.
            bits: 8, or 4 where `bits` is 4.

        Raises:
            ModelFileError: values that are not finite.
            ValueError: a value is too large for a scale of half precision.
            OSError: it cannot be read.
        """
        if self.dtype not in WHOLE:
            return quantise(self.read(name), bits)
        made = whole(self.dtype, self._data(), self.shape[-1], bits)
        if not np.isfinite(made.scales).all():
            raise self._not_finite(name)
        return Quantised(bits, self._ordered(made.weight), self._ordered(made.scales))

    def _stored(self, name: str) -> np.ndarray:
        with np.errstate(invalid="ignore", over="ignore"):
            found = values(self.dtype, self._data()).reshape(self.shape)
        if not np.isfinite(found.min(initial=0)) or not np.isfinite(found.max(initial=0)):
            raise self._not_finite(name)
        return found

    def _data(self) -> np.ndarray:
        """The blocks (n, bytes of one)."""
        elements, size = BLOCKS[self.dtype]
        data = np.fromfile(self.path, np.uint8, self.end - self.begin, offset=self.begin)
        if len(data) != math.prod(self.shape) // elements * size:
            raise ModelFileError(f"{self.path.name}: the file became shorter: download it again")
        return data.reshape(-1, size)

    def _ordered(self, rows: np.ndarray) -> np.ndarray:
        """Rows of each head with the first halves of its pairs before the second ones."""
        if not self.heads:
            return rows
        pairs = rows.reshape(self.heads, -1, 2, *rows.shape[1:])
        return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)

    def _not_finite(self, name: str) -> ModelFileError:
        return ModelFileError(
            f"{self.path.name}: weight {printable(name, 100)!r} holds NaN or infinity: "
            "the model cannot give useful outputs"
        )
