"""Weights that lie in files and are read a matrix, or some rows, at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from host.importers.decoders.description import Matrix
from host.importers.decoders.quantise import Form, Quantised, dequantise, in_order


class Stored(Protocol):
    """A weight of a model in a file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the weight."""

    @property
    def has_rows(self) -> bool:
        """Whether some rows can be read without all the others."""

    def read(self, name: str) -> np.ndarray:
        """All values as float32; the name is for messages."""

    def rows(self, name: str, begin: int, end: int) -> np.ndarray:
        """Some rows as float32."""


@dataclass(frozen=True)
class StoredArray:
    """An array in a file.

    Attributes:
        path: of the file.
        dtype: of the elements.
        shape: of the array, with one dimension or more.
        begin: byte of the file.
    """

    path: Path
    dtype: np.dtype
    shape: tuple[int, ...]
    begin: int

    def rows(self, begin: int, end: int) -> np.ndarray:
        """Some of its rows."""
        row = math.prod(self.shape[1:])
        offset = self.begin + begin * row * self.dtype.itemsize
        made = np.fromfile(self.path, self.dtype, (end - begin) * row, offset=offset)
        return made.reshape(end - begin, *self.shape[1:])


@dataclass(frozen=True)
class StoredPart:
    """A quantised matrix in a file.

    Attributes:
        matrix: what it is called and whether the model has it transposed.
        form: of the numbers.
        arrays: of `Quantised`, in its order, each with the rows of the matrix.
        places: of `QuantisedPart.order`; None where there is none.
    """

    matrix: Matrix
    form: Form
    arrays: tuple[StoredArray, ...]
    places: StoredArray | None = None

    @property
    def order(self) -> np.ndarray | None:
        """The input (K) of each column; None where they are in order."""
        return None if self.places is None else self.places.rows(0, self.places.shape[0])

    @property
    def shape(self) -> tuple[int, ...]:
        """As the model has it."""
        return self.matrix.shape

    @property
    def has_rows(self) -> bool:
        """Whether some rows can be read without all the others."""
        return not self.matrix.transposed

    def read(self, name: str) -> np.ndarray:
        """The values that the numbers represent."""
        made = self.values(0, self.matrix.rows)
        return made.T if self.matrix.transposed else made

    def rows(self, name: str, begin: int, end: int) -> np.ndarray:
        """Some rows of the values."""
        return self.read(name)[begin:end] if self.matrix.transposed else self.values(begin, end)

    def values(self, begin: int, end: int) -> np.ndarray:
        """What some outputs are multiplied by: (n, inputs) float32."""
        made = dequantise(Quantised.of(self.form, [one.rows(begin, end) for one in self.arrays]))
        return in_order(made, self.order)


@dataclass(frozen=True)
class Halves:
    """A weight whose matrices are rounded to half precision, as a compiled model in it has them.

    Attributes:
        weight: that is rounded.
    """

    weight: Stored

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the weight."""
        return self.weight.shape

    @property
    def has_rows(self) -> bool:
        """Whether some rows can be read without all the others."""
        return self.weight.has_rows

    def read(self, name: str) -> np.ndarray:
        """The rounded values."""
        return self._rounded(self.weight.read(name))

    def rows(self, name: str, begin: int, end: int) -> np.ndarray:
        """Some rows of the rounded values."""
        return self._rounded(self.weight.rows(name, begin, end))

    def _rounded(self, values: np.ndarray) -> np.ndarray:
        # Beyond the range they become infinite, as they do in the compiled model.
        with np.errstate(over="ignore"):
            return values.astype(np.float16).astype(np.float32) if len(self.shape) > 1 else values
