"""Weights of a folder as constants of relax: read one at a time, quantised, and shared by all modules."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import tvm
from tvm import relax

from device_agent.contract.limits import LIMITS
from device_agent.contract.text import printable
from host.errors import ModelFileError
from host.importers.decoders.description import (
    DecoderWeights,
    Matrix,
    NormKind,
    NormWeights,
    Product,
    Rotary,
    Vector,
)
from host.importers.decoders.folder import ModelFolder
from host.importers.decoders.quantise import GROUP, Form, Quantised, QuantisedPart, block_of, quantise


@dataclass(frozen=True, eq=False)
class WeightConstants:
    """The constants of neighbouring parts of a product that have one form.

    Attributes:
        parts: of the product.
        form: None where the weight is float32.
        arrays: the weight (N, K); the arrays of a `Quantised` where it is one.
        order: (K) int32, the input that each column is for; None where they are in order.
    """

    parts: tuple[Matrix, ...]
    form: Form | None
    arrays: tuple[relax.Constant, ...]
    order: relax.Constant | None = None

    @property
    def rows(self) -> int:
        """Number of outputs: the rows of all matrices together."""
        return sum(part.rows for part in self.parts)


@dataclass(frozen=True, eq=False)
class ProductConstants:
    """The constants of one product.

    Attributes:
        weights: one after the other along the outputs.
        bias: (N); None without.
    """

    weights: tuple[WeightConstants, ...]
    bias: relax.Constant | None


class Constants:
    """All constants of a decoder, each made when it is first asked for.

    Args:
        folder: with the weights.
        bits: most of a quantised weight, 8 or 4; 0 for float32.
        context: positions that tables have rows for.
        group: inputs that share a scale of weights that are quantised here.
        half: whether the program's tensors will be in half precision.
        asymmetry: of weights that are quantised here, see `Form`.
        importance: by names of weights, what an error in the weights of each input weighs; see `quantise`.
        cache: "int8" for keys and values of bytes; "" for floating point.

    Attributes:
        half: the same.
        kept: type of the keys and values: float32, and float16 with `half` and beside quantised weights,
            which lose more than that, unless the import finds otherwise; int8 where that is asked for.
    """

    def __init__(
        self,
        folder: ModelFolder,
        bits: int,
        context: int,
        group: int = GROUP,
        *,
        half: bool = False,
        asymmetry: str = "",
        importance: Mapping[str, np.ndarray] | None = None,
        cache: str = "",
    ) -> None:
        self._folder, self._bits, self._context, self._group = folder, bits, context, group
        self._asymmetry, self._importance = asymmetry, importance or {}
        self.half = half
        self.kept = cache or ("float16" if bits or half else "float32")
        self._products: dict[Product, ProductConstants] = {}
        self._others: dict[object, relax.Constant] = {}
        self._tables: dict[Rotary, tuple[relax.Constant, relax.Constant]] = {}

    def product(self, product: Product) -> ProductConstants:
        """Weight and bias of a product.

        Raises:
            ModelFileError: a weight is of no type that is read, not finite, or too large.
            OSError: it cannot be read.
        """
        if product not in self._products:
            self._products[product] = self._made(product)
        return self._products[product]

    def norm(self, kind: NormKind, weights: NormWeights) -> tuple[relax.Constant, relax.Constant | None]:
        """Weight and bias of a norm, the offset added to the weight."""
        if weights not in self._others:
            self._others[weights] = constant(self._vector(weights.weight) + np.float32(kind.offset))
        if weights.bias is None:
            return self._others[weights], None
        if weights.bias not in self._others:
            self._others[weights.bias] = constant(self._vector(weights.bias))
        return self._others[weights], self._others[weights.bias]

    def positions(self, matrix: Matrix) -> relax.Constant:
        """The rows of the first positions (C, hidden)."""
        if matrix not in self._others:
            self._others[matrix] = constant(
                self._folder.weights[matrix.name].read(matrix.name)[: self._context]
            )
        return self._others[matrix]

    def rotation(self, rotary: Rotary) -> tuple[relax.Constant, relax.Constant]:
        """Cosines, and sines with the sign of their half, (C, 1, 2, pairs) each."""
        if rotary not in self._tables:
            angles = np.outer(np.arange(self._context, dtype=np.float64), rotary.frequencies)
            cosine, sine = np.cos(angles) * rotary.scale, np.sin(angles) * rotary.scale
            halves = (np.stack([cosine, cosine], axis=1), np.stack([-sine, sine], axis=1))
            tables = [constant(table[:, None].astype(np.float32)) for table in halves]
            self._tables[rotary] = (tables[0], tables[1])
        return self._tables[rotary]

    def quantised_parts(self, weights: DecoderWeights) -> Iterator[QuantisedPart]:
        """The matrices that are quantised, each once."""
        for product in weights.products():
            for made in self.product(product).weights:
                if made.form is None:
                    continue
                arrays = [np.from_dlpack(one.value) for one in made.arrays]
                order = None if made.order is None else np.from_dlpack(made.order.value)
                begin = 0
                for part in made.parts:
                    rows = slice(begin, begin + part.rows)
                    yield QuantisedPart(part, Quantised.of(made.form, [one[rows] for one in arrays]), order)
                    begin += part.rows

    def read(self, weights: DecoderWeights) -> None:
        """Read what can be refused: a module that is left half made lets TVM print a line of its own.

        Raises:
            ModelFileError: see `product`.
            OSError: a file cannot be read.
        """
        for product in weights.products():
            self.product(product)
        for norm in (weights.final_norm, *(norm for layer in weights.layers for norm in layer.norms())):
            self._vector(norm.weight)

    def step_bytes(self, weights: DecoderWeights) -> int:
        """Bytes of the matrices that a step multiplies with: all but an embedding that is no head."""
        alone = weights.embedding != weights.head
        products = [one for one in weights.products() if not (alone and one is weights.embedding)]
        arrays = [array for one in products for made in self.product(one).weights for array in made.arrays]
        total = sum(np.from_dlpack(one.value).nbytes for one in arrays)
        return total // 2 if self.half else total

    def _made(self, product: Product) -> ProductConstants:
        bias = None
        if product.biases:
            bias = constant(np.concatenate([self._vector(one) for one in product.biases]))
        asked = (self._bits, self._group, self._asymmetry)
        runs = groupby(product.parts, lambda part: (part_form(self._folder, part, *asked), self._order(part)))
        found = [self._weights(form, order, tuple(parts)) for (form, order), parts in runs]
        return ProductConstants(tuple(found), bias)

    def _order(self, part: Matrix) -> bytes:
        """The order of a matrix's inputs; nothing where they are in order."""
        order = self._folder.weights[part.name].order
        return b"" if order is None else order.tobytes()

    def _weights(self, form: Form | None, order: bytes, parts: tuple[Matrix, ...]) -> WeightConstants:
        if form is not None:
            made = zip(*(self._quantised(part, form).arrays for part in parts), strict=True)
            own = constant(np.frombuffer(order, np.int32)) if order else None
            return WeightConstants(parts, form, tuple(constant(np.concatenate(one)) for one in made), own)
        weight = np.empty((sum(part.rows for part in parts), parts[0].columns), np.float32)
        begin = 0
        for part in parts:
            weight[begin : begin + part.rows] = self._matrix(part)
            begin += part.rows
        return WeightConstants(parts, None, (constant(weight),))

    def _quantised(self, part: Matrix, form: Form) -> Quantised:
        importance = self._importance.get(part.name)
        try:
            if part.transposed and self._folder.weights[part.name].form is None:
                return quantise(self._matrix(part), form.bits, form.block, form.asymmetry, importance)
            return self._folder.weights[part.name].quantised(part.name, form, importance)
        except ValueError as error:
            raise ModelFileError(
                f"{self._folder.path}: weight {printable(part.name, 100)!r} cannot be quantised: {error}: "
                "deploy it in float32, from a folder of transformers and without --quantize"
            ) from error

    def _matrix(self, part: Matrix) -> np.ndarray:
        values = self._folder.weights[part.name].read(part.name)
        return values.T if part.transposed else values

    def _vector(self, vector: Vector) -> np.ndarray:
        return self._folder.weights[vector.name].read(vector.name)


def constant(values: np.ndarray) -> relax.Constant:
    """A constant with a copy of the values."""
    return relax.const(tvm.runtime.tensor(np.ascontiguousarray(values)))


def part_form(
    folder: ModelFolder, part: Matrix, bits: int, group: int = GROUP, asymmetry: str = ""
) -> Form | None:
    """The form of a matrix of a product; None for float32.

    Weights that are quantised in the files keep their form, and those beside them that are not stay as they
    are. Others are quantised if that is asked for and their inputs are whole groups.

    Args:
        folder: with the weights.
        part: one of them.
        bits: that are asked for; 0 for float32.
        group: inputs that share a scale, of `GROUPS`; where the inputs are not whole groups, fewer.
        asymmetry: of what is quantised here.
    """
    if folder.bits:
        return folder.weights[part.name].form
    block = block_of(part.columns, group)
    return Form(bits, block=block, asymmetry=asymmetry) if bits and block else None


def check_bytes(
    folder: ModelFolder, weights: DecoderWeights, bits: int, group: int = GROUP, asymmetry: str = ""
) -> None:
    """Refuse a model whose weights no bundle can hold, before one is read.

    Raises:
        ModelFileError: they take too much.
    """
    total = sum(4 * math.prod(shape) for _, shape in weights.tensors())
    for part in (part for product in weights.products() for part in product.parts):
        form = part_form(folder, part, bits, group, asymmetry)
        if form is not None:
            total -= 4 * part.rows * part.columns - form.bytes_of(part.rows, part.columns)
    if total > LIMITS.bundle.file_bytes:
        raise ModelFileError(
            f"{folder.path}: its weights take {total / 2**30:.1f} GiB, a bundle holds at most "
            f"{LIMITS.bundle.file_bytes / 2**30:.0f}: quantise it to fewer bits, or give a smaller model"
        )
