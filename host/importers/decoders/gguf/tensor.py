"""One tensor of a GGUF file, in the form that a folder of transformers has it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from device_agent.contract.text import printable
from host.errors import ModelFileError
from host.importers.decoders.gguf.blocks import form_of, whole
from host.importers.decoders.gguf.header import BLOCKS
from host.importers.decoders.quantise import Form, Quantised, dequantise
from host.importers.decoders.safetensors_file import StoredTensor


@dataclass(frozen=True)
class GgufTensor(StoredTensor):
    """Where one tensor lies, and what the converter has done to it.

    Attributes:
        heads: whose rows are ordered for a rotation of neighbours; 0 for none.
        offset: that has been added to the values.
        transposed: whether folders have the matrix as (columns, rows), which `shape` says.
    """

    heads: int = 0
    offset: float = 0.0
    transposed: bool = False

    @property
    def form(self) -> Form | None:
        """The form of its type; None of floating point."""
        return form_of(self.dtype)

    @property
    def has_rows(self) -> bool:
        """See `StoredTensor.has_rows`; no where they lie in another order."""
        return not (self.heads or self.transposed)

    def read(self, name: str) -> np.ndarray:
        """The values as float32; see `StoredTensor.read`."""
        if self.dtype not in BLOCKS:
            raise ModelFileError(
                f"{self.path.name}: weight {printable(name, 100)!r} has {_kind(self.dtype)}; "
                f"{', '.join(BLOCKS)} are read: give a file of one of these, such as Q4_0 or Q8_0"
            )
        if self.form is None:
            found = super().read(name).reshape(self._own_shape)
        else:
            found = dequantise(self._stored(name)).reshape(self._own_shape)
        found = np.ascontiguousarray(found.T) if self.transposed else self._ordered(found)
        return found - np.float32(self.offset) if self.offset else found

    def rows(self, name: str, begin: int, end: int) -> np.ndarray:
        """Some rows of the values as float32; see `StoredTensor.rows`."""
        return super().rows(name, begin, end) if self.has_rows else self.read(name)[begin:end]

    def quantised(self, name: str, form: Form, importance: np.ndarray | None = None) -> Quantised:
        """The values (rows, columns) in the form of their type, none changed; see `StoredTensor.quantised`.

        Raises:
            ModelFileError: values that are not finite.
            ValueError: of floating point, a value is too large for a scale of half precision.
            OSError: it cannot be read.
        """
        if self.form is None:
            return super().quantised(name, form, importance)
        made = self._stored(name)
        return Quantised.of(made.form, [self._ordered(one) for one in made.arrays])

    @property
    def _own_shape(self) -> tuple[int, ...]:
        """As the file has it."""
        return self.shape[::-1] if self.transposed else self.shape

    def _stored(self, name: str) -> Quantised:
        """The values with rows as the file has them."""
        made = whole(self.dtype, self._data(), self._own_shape[-1])
        if not all(np.isfinite(one).all() for one in (made.scales, made.minima) if one is not None):
            raise self._not_finite(name)
        return made

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


def _kind(dtype: str) -> str:
    """A type for a message; one that is not known is "type N" already."""
    shown = printable(dtype, 20)
    return shown if shown.startswith("type ") else f"type {shown}"
