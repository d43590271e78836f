"""The tensor expression of one fused function while it is being written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import te, tirx

from host.lowering.graph import Value

Expression = Any
Indices = Sequence[Any]
Element = Callable[[Indices], Expression]


class Stage:
    """Knows how to read one element of every value that a function uses.

    Values that the function computes are either tensors (a block writes them) or formulas of their
    indices (written where they are read). Anything else becomes an argument, in the order of first use.

    Args:
        halves: values that lie in memory in half precision, with their type there; all is computed in single
            precision.
        any_length: whether one function is to serve all lengths of a range, of which this is one.

    Attributes:
        any_length: as given.
        arguments: values that the function reads, with their placeholders.
    """

    def __init__(self, halves: Mapping[Value, str] | None = None, any_length: bool = False) -> None:
        self.any_length = any_length
        self.arguments: dict[Value, te.Tensor] = {}
        self._halves = halves or {}
        self._widened: dict[Value, te.Tensor] = {}
        self._elements: dict[Value, Element] = {}
        self._tensors: dict[Value, te.Tensor] = {}
        self._shared: set[Value] = set()
        self._scopes: list[_Scope] = []

    def define(self, value: Value, element: Element) -> None:
        """Define the elements of a value by a formula of their indices."""
        self._elements[value] = element

    def define_tensor(self, value: Value, tensor: te.Tensor) -> None:
        """Define a value by a computed tensor of its shape."""
        self._tensors[value] = tensor
        self._elements[value] = lambda indices: load(tensor, indices)

    def share(self, value: Value) -> None:
        """Evaluate a formula once per element although several formulas read it."""
        self._shared.add(value)

    def element(self, value: Value, indices: Indices) -> Expression:
        """The element of `value` at `indices`."""
        if value in self._shared and value not in self._tensors and self._scopes:
            return self._scopes[-1].named(value, indices, self._elements[value])
        if value in self._elements:
            return self._elements[value](indices)
        if value.data is not None and value.size == 1:
            return tirx.const(value.data.reshape(-1)[0].item(), value.dtype)
        if value in self._halves:
            return load(self._placeholder(value), indices).astype(value.dtype)
        return load(self.argument(value), indices)

    def element_as(self, value: Value, indices: Indices, dtype: str) -> Expression:
        """The element of `value` as a number of another type; as it lies in memory where that is its type."""
        if self._is_stored_as(value, dtype):
            return load(self._placeholder(value), indices)
        found = self.element(value, indices)
        return found if value.dtype == dtype else found.astype(dtype)

    def tensor_as(self, value: Value, dtype: str, name: str) -> te.Tensor:
        """`value` as a tensor of another type: an argument of that type, or a block called `name`."""
        if value.dtype == dtype:
            return self.tensor(value, name)
        if self._is_stored_as(value, dtype):
            return self._placeholder(value)
        return self.compute(value.shape, lambda indices: self.element_as(value, indices, dtype), name)

    def _is_stored_as(self, value: Value, dtype: str) -> bool:
        return value not in self._elements and self._halves.get(value) == dtype

    def broadcast_element(self, value: Value, shape: Sequence[int], indices: Indices) -> Expression:
        """The element of `value` that broadcasts to `indices` of a tensor of `shape`."""
        skipped = len(shape) - len(value.shape)
        pairs = zip(value.shape, shape[skipped:], indices[skipped:], strict=True)
        return self.element(value, [0 if own == 1 and size != 1 else i for own, size, i in pairs])

    def argument(self, value: Value) -> te.Tensor:
        """The placeholder of a value that the function does not compute, or a block that widens it."""
        placeholder = self._placeholder(value)
        if value not in self._halves:
            return placeholder
        if value not in self._widened:
            self._widened[value] = te.compute(
                tuple(value.shape),
                lambda *indices: load(placeholder, indices).astype(value.dtype),
                name=f"widened{len(self._widened)}",
            )
        return self._widened[value]

    def _placeholder(self, value: Value) -> te.Tensor:
        if value not in self.arguments:
            name = f"{'w' if value.is_constant else 'x'}{len(self.arguments)}"
            self.arguments[value] = te.placeholder(
                value.shape, self._halves.get(value, value.dtype), name=name
            )
        return self.arguments[value]

    def tensor(self, value: Value, name: str) -> te.Tensor:
        """`value` as a tensor: an argument, or a block called `name` if it is only a formula."""
        if value in self._tensors:
            return self._tensors[value]
        if value not in self._elements:
            return self.argument(value)
        element = self._elements[value]
        self.define_tensor(value, self.compute(value.shape, element, name))
        return self._tensors[value]

    def compute(self, shape: Sequence[int], element: Element, name: str) -> te.Tensor:
        """A block that writes `element(indices)` over `shape`."""
        return te.compute(tuple(shape), lambda *indices: self.scoped(lambda: element(indices)), name=name)

    def scoped(self, make: Callable[[], Expression]) -> Expression:
        """An expression in which each shared value has a name of its own.

        Conditional parts need a scope of their own: what is named outside is evaluated always.
        """
        scope = _Scope()
        self._scopes.append(scope)
        try:
            expression = make()
        finally:
            self._scopes.pop()
        for variable, value in reversed(scope.bindings):
            expression = tirx.Let(variable, value, expression)
        return expression


class _Scope:
    """Names given to shared values within one expression."""

    def __init__(self) -> None:
        self.bindings: list[tuple[tirx.Var, Expression]] = []
        self._names: dict[tuple[Value, tuple[int, ...]], tuple[tirx.Var, Indices]] = {}

    def named(self, value: Value, indices: Indices, element: Element) -> Expression:
        """The variable that holds `value` at `indices`."""
        # Index expressions compare by identity; the table keeps them alive.
        key = (value, tuple(i if isinstance(i, int) else id(i) for i in indices))
        if key not in self._names:
            computed = element(indices)
            variable = tirx.Var(f"v{len(self.bindings)}", value.dtype)
            self.bindings.append((variable, computed))
            self._names[key] = (variable, indices)
        return self._names[key][0]


def load(tensor: te.Tensor, indices: Indices) -> Expression:
    """One element of a tensor as a plain expression."""
    return tensor(*indices)


def dtype_of(expression: Expression) -> str:
    """Dtype of a TensorIR expression."""
    return str(expression.ty.dtype) if hasattr(expression, "ty") else str(expression.dtype)
