"""Small rewritings that every imported module gets: nothing out of bounds, no slow powers."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator


def normalise(module: tvm.IRModule) -> tvm.IRModule:
    """The module with the same outputs for every valid input.

    Casts, reshapes and broadcasts that change nothing go. Constant numbers of a selection count from the end
    below 0. An index that is out of range stays within the tensor that it points into instead of reading or
    writing foreign memory. The exceptions are gathers and scatters of elements and of tuples on a tensor with
    an open dimension. A scatter into a part of its tensor is made one of that part. A power with a small
    whole exponent becomes multiplications: exact for negative bases, where pow is slow.
    """
    rewriter = _Rewriter(module)
    module = tvm.IRModule(module.functions, attrs=module.attrs)
    module["main"] = relax.analysis.remove_all_unused(rewriter.visit_expr(module["main"]))
    return relax.transform.CanonicalizeBindings()(module)


# Operators that change nothing if the type stays the same.
_MOVES = frozenset({"relax.astype", "relax.broadcast_to", "relax.reshape"})
# Operators whose second argument has indices into the first.
_INDEXED = frozenset(
    {"relax.gather_elements", "relax.gather_nd", "relax.scatter_elements", "relax.scatter_nd"}
)
# Those of them along an axis, which a tensor of one number alone need not have.
_OF_ELEMENTS = frozenset({"relax.gather_elements", "relax.scatter_elements"})
# Operators whose second argument is a tensor of indices for each of the first axes of the first.
_INDEXED_BY_AXIS = frozenset({"relax.index_tensor", "relax.index_put"})
# Operators whose second argument has regions (R, 5), each with the number of its image first.
_OF_REGIONS = frozenset({"relax.vision.roi_align", "relax.vision.roi_pool"})


@mutator
class _Rewriter(PyExprMutator):  # type: ignore[misc]  # TVM has no types
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        name = getattr(call.op, "name", "")
        if name == "relax.take" and call.attrs.mode == "fast":
            return relax.op.take(call.args[0], _from_start(call), call.attrs.axis, mode="clip")
        if name in _OF_ELEMENTS and _sizes(call.args[0]) == []:
            return self._of_one_element(call)
        if name in _INDEXED:
            call = self._within(call, name)
        if name in _INDEXED_BY_AXIS:
            call = self._within_axes(call)
        if name in _OF_REGIONS:
            return self._within_images(call)
        if name == "relax.scatter_elements":
            return self._scattered(call)
        if name in _MOVES and self._same_type(call):
            return call.args[0]
        if name == "relax.power":
            exponent = _exponent(call.args[1])
            if exponent is not None:
                return self._power(call.args[0], exponent)
        return call

    def _same_type(self, call: relax.Call) -> bool:
        """Whether a cast, reshape or broadcast gives what it was given."""
        made = self.builder_.normalize(call).ty
        given = call.args[0].ty
        if not isinstance(made, relax.TensorType) or not isinstance(given, relax.TensorType):
            return False
        return bool(tvm_ffi.structural_equal(made, given))

    def _of_one_element(self, call: relax.Call) -> relax.Expr:
        """A gather or scatter of tensors without axes, as of such with one."""
        line = [self.builder_.emit(relax.op.reshape(one, [1])) for one in call.args]
        widened = relax.Call(call.op, line, call.attrs, call.ty_args)
        made = self.builder_.emit(self._within(widened, call.op.name))
        return relax.op.reshape(made, [])

    def _within(self, call: relax.Call, name: str) -> relax.Call:
        """The call with its indices kept within the first argument, where its sizes are known."""
        data, indices, *others = call.args
        shape, covered = _sizes(data), _sizes(indices)
        if shape is None or covered is None:
            return call
        if name.endswith("_nd"):
            first = int(getattr(call.attrs, "batch_dims", 0))
            sizes = np.array(shape[first : first + covered[-1]])
        else:
            sizes = np.array(shape[int(call.attrs.axis) % len(shape)])
        dtype = str(indices.ty.dtype)
        # TVM's function of this one counts negative indices from the end; importers do it for the others.
        counts_from_end = name == "relax.scatter_elements" and not dtype.startswith("uint")
        least = (-sizes if counts_from_end else np.zeros_like(sizes)).astype(dtype)
        most = (sizes - 1).astype(dtype)
        if isinstance(indices, tvm.ir.GenericConst):
            kept = relax.const(np.clip(indices.value.numpy(), least, most), dtype)
        else:
            above = self.builder_.emit(relax.op.maximum(indices, relax.const(least, dtype)))
            kept = self.builder_.emit(relax.op.minimum(above, relax.const(most, dtype)))
        return relax.Call(call.op, [data, kept, *others], call.attrs, call.ty_args)

    def _within_axes(self, call: relax.Call) -> relax.Call:
        """The call with every tensor of indices kept within its axis; negative ones count from the end."""
        data, indices, *others = call.args
        shape, count = _sizes(data), len(indices.ty.fields)
        if shape is None:
            return call
        is_tuple = isinstance(indices, relax.Tuple)
        fields = [indices.fields[i] if is_tuple else relax.TupleGetItem(indices, i) for i in range(count)]
        kept = [self._within_axis(field, size) for field, size in zip(fields, shape, strict=False)]
        return relax.Call(call.op, [data, relax.Tuple(kept), *others], call.attrs, call.ty_args)

    def _within_axis(self, indices: relax.Expr, size: int) -> relax.Expr:
        if isinstance(indices, tvm.ir.GenericConst):
            values = indices.value.numpy()
            inside = np.clip(np.where(values < 0, values + size, values), 0, size - 1).astype(values.dtype)
            return indices if (inside == values).all() else relax.const(inside, str(values.dtype))
        indices = self.builder_.emit(indices)
        dtype = str(indices.ty.dtype)
        if dtype == "bool":
            return indices
        least, most, whole = (relax.const(value, dtype) for value in (0, size - 1, size))
        if not dtype.startswith("uint"):
            behind = self.builder_.emit(relax.op.add(indices, whole))
            indices = self.builder_.emit(relax.op.where(relax.op.less(indices, least), behind, indices))
        above = self.builder_.emit(relax.op.maximum(indices, least))
        return self.builder_.emit(relax.op.minimum(above, most))

    def _within_images(self, call: relax.Call) -> relax.Expr:
        """The call with the numbers of images, which are floats, kept within the batch; NaN becomes 0."""
        data, regions = call.args
        shape, sizes = _sizes(data), _sizes(regions)
        if shape is None or sizes is None:
            return call
        dtype = str(regions.ty.dtype)
        zero, last = (relax.const(float(value), dtype) for value in (0, shape[0] - 1))
        emit = self.builder_.emit
        number = emit(relax.op.strided_slice(regions, [1], [0], [1]))
        number = emit(relax.op.where(emit(relax.op.greater(number, zero)), number, zero))
        number = emit(relax.op.where(emit(relax.op.less(number, last)), number, last))
        corners = emit(relax.op.strided_slice(regions, [1], [1], [sizes[1]]))
        kept = emit(relax.op.concat([number, corners], axis=1))
        return relax.Call(call.op, [data, kept], call.attrs, call.ty_args)

    def _scattered(self, call: relax.Call) -> relax.Expr:
        """A scatter whose indices cover a part of the other axes, as one of that part.

        TVM's function takes all tensors to have equal sizes along the axes that it does not scatter along.
        """
        data, indices, updates = call.args
        shape, covered = _sizes(data), _sizes(indices)
        if shape is None or covered is None:
            return call
        axis = int(call.attrs.axis) % len(shape)
        if _sizes(updates) != covered:
            updates = self._part(updates, covered)
        covered[axis] = shape[axis]
        if covered == shape:
            return relax.Call(call.op, [data, indices, updates], call.attrs, call.ty_args)
        part = self._part(data, covered)
        made = self.builder_.emit(relax.Call(call.op, [part, indices, updates], call.attrs, call.ty_args))
        for position, (size, whole) in enumerate(zip(tuple(covered), shape, strict=True)):
            if size < whole:
                covered[position] = whole
                rest = relax.op.strided_slice(self._part(data, covered), [position], [size], [whole], [1])
                made = self.builder_.emit(relax.op.concat([made, self.builder_.emit(rest)], position))
        return made

    def _part(self, tensor: relax.Expr, sizes: list[int]) -> relax.Expr:
        """The first elements along each axis."""
        axes = list(range(len(sizes)))
        return self.builder_.emit(relax.op.strided_slice(tensor, axes, [0] * len(sizes), sizes))

    def _power(self, base: relax.Expr, exponent: float) -> relax.Expr:
        if exponent == 0.5:
            return relax.op.sqrt(base)
        if exponent == 1:
            return base
        square = relax.op.multiply(base, base)
        return square if exponent == 2 else relax.op.multiply(self.builder_.emit(square), base)


def _from_start(take: relax.Call) -> relax.Expr:
    """The numbers of a selection; constant ones below 0 count from the end, as exporters write `x[:, -1]`."""
    data, indices = take.args
    sizes, axis = _sizes(data), take.attrs.axis
    if sizes is None or not isinstance(indices, tvm.ir.GenericConst):
        return indices
    numbers = indices.value.numpy()
    size = int(np.prod(sizes)) if axis is None else sizes[int(axis) % len(sizes)]
    return relax.const(np.where(numbers < 0, numbers + size, numbers).astype(numbers.dtype))


def _sizes(tensor: relax.Expr) -> list[int] | None:
    """The sizes of a tensor; None where one is not a number."""
    shape = getattr(tensor.ty, "shape", None)
    sizes = [getattr(size, "value", size) for size in getattr(shape, "values", ())]
    return sizes if shape is not None and all(isinstance(size, int) for size in sizes) else None


def _exponent(expression: Any) -> float | None:
    """A constant exponent that there is a shorter form for."""
    if not isinstance(expression, tvm.ir.GenericConst):
        return None
    values = expression.value.numpy()
    if values.size != 1 or values.ndim > 0:
        return None
    value = float(values)
    return value if value in (1.0, 2.0, 3.0) or (value == 0.5 and values.dtype.kind == "f") else None
