"""Products of rows with the weights of a decoder, as relax."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from host.importers.decoders.constants import Constants, ProductConstants, WeightConstants, constant
from host.importers.decoders.description import Product
from host.importers.decoders.quantise import Form
from host.importers.decoders.reference.roundings import Roundings
from host.importers.layers import LayerNames

# What the compiler reads the operation by.
DENSE = "edgetlm.quantised_dense"
# Bits that activations of products with quantised weights are rounded to. With `EXACT`, logits are as those
# of float32; `ROUNDED` halves the work of processors that multiply bytes.
EXACT, ROUNDED = 16, 8


class Products:
    """Emits products.

    Args:
        emit: emits an expression, and gives its variable.
        constants: the weights.
        layers: gets the names of the products.
        roundings: what may be rounded further than in a step, where a call allows it.
    """

    def __init__(
        self, emit: Callable[[Any], Any], constants: Constants, layers: LayerNames, roundings: Roundings
    ) -> None:
        self._emit, self._constants, self._layers = emit, constants, layers
        self._roundings = roundings

    def whole(self, value: Any, product: Product, *, rounded: bool = False) -> Any:
        """Rows (T, K) by the weight: (T, N); `rounded` if the prefill may round the rows to bytes."""
        rounded = rounded and self._roundings.products
        rounded = rounded and not any(part.name in self._roundings.exact for part in product.parts)
        rounding = ROUNDED if rounded else EXACT
        made = self._constants.product(product)
        pieces = [self._weighed(value, one, rounding) for one in made.weights]
        return self._joined(product, pieces, made.bias)

    def divided(self, value: Any, product: Product, rounded: int) -> tuple[Any, Any]:
        """Rows (T, K) by the weight, as two results: (T, `rounded`), and exactly the other outputs.

        The prefill may round the rows to bytes for the first. Both read parts of the same weight.
        """
        made = self._constants.product(product)
        first, second = (
            self._joined(
                product,
                self._between(value, made, (begin, end), rounding),
                None if made.bias is None else constant(np.from_dlpack(made.bias.value)[begin:end]),
            )
            for begin, end, rounding in ((0, rounded, ROUNDED), (rounded, product.rows, EXACT))
        )
        return first, second

    def _between(
        self, value: Any, made: ProductConstants, outputs: tuple[int, int], rounding: int
    ) -> list[Any]:
        """The outputs from one to another, of each weight that has some of them."""
        pieces, begin = [], 0
        for one in made.weights:
            low, high = max(outputs[0] - begin, 0), min(outputs[1] - begin, one.rows)
            if low < high:
                pieces.append(self._weighed(value, one, rounding, (low, high)))
            begin += one.rows
        return pieces

    def _joined(self, product: Product, pieces: Sequence[Any], bias: Any) -> Any:
        result = pieces[0] if len(pieces) == 1 else self._emit(relax.op.concat(pieces, axis=1))
        result = result if bias is None else self._emit(relax.op.add(result, bias))
        self._layers.record((*pieces, result), product_name(product), "product")
        return result

    def _weighed(
        self, value: Any, weight: WeightConstants, rounding: int, outputs: tuple[int, int] | None = None
    ) -> Any:
        """Rows (T, K) by the weight of one form, or by those of its rows that `outputs` is from and to."""
        begin, end = outputs or (0, weight.rows)
        if weight.form is None:
            made = self._emit(relax.op.matmul(value, self._emit(relax.op.permute_dims(weight.arrays[0]))))
            if end - begin == weight.rows:
                return made
            return self._emit(relax.op.strided_slice(made, [1], [begin], [end]))
        if weight.order is not None:
            value = self._emit(relax.op.take(value, weight.order, axis=1, mode="clip"))
        shape = (int(value.ty.shape[0]), end - begin)
        options = form_options(weight.form)
        if rounding != EXACT:
            options["rounding"] = rounding
        if end - begin != weight.rows:
            options["first"] = begin
        return self._emit(own_call(DENSE, [value, *weight.arrays], options, shape))


def own_call(name: str, arguments: Sequence[Any], options: dict[str, Any], shape: tuple[int, ...]) -> Any:
    """A call of an operation of ours, which gets its options as JSON behind the arguments."""
    text = tvm.ir.StringImm(json.dumps(options, sort_keys=True))
    result = relax.TensorType(shape, "float32")
    return relax.call_dps_packed(name, relax.Tuple([*arguments, text]), [result])


def form_options(form: Form) -> dict[str, Any]:
    """The attributes of a form that the operations need; the rest follows from the sizes of the arrays."""
    options: dict[str, Any] = {"bits": form.bits, "group": form.group}
    options |= {"asymmetry": form.asymmetry} if form.asymmetry else {}
    return options | ({"multiplied": True} if form.multiplied else {})


def product_name(product: Product) -> str:
    """The modules of a product's weights: the path of the first, and the last parts of the others' paths."""
    first, *others = (part.name.removesuffix(".weight") for part in product.parts)
    return ", ".join([first, *(name.rpartition(".")[2] for name in others)])
