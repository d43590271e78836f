"""Reads products and polynomials out of elementwise operations, however they are written."""

from __future__ import annotations

from host.lowering.graph import Value

_DEPTH = 12
_MAX_DEGREE = 4
_ALGEBRA = frozenset({"negative", "square", "add", "subtract", "multiply", "divide", "power"})

# Coefficients by degree.
Polynomial = dict[int, float]


def product(value: Value, depth: int = _DEPTH) -> tuple[float, list[Value]]:
    """A coefficient and factors whose product `value` is; divisions by constants are multiplied out."""
    number = value.scalar()
    if number is not None:
        return number, []
    node = value.producer
    if node is None or depth == 0 or not value.is_float:
        return 1.0, [value]
    if node.op == "multiply" and all(_shapes_agree(value, part) for part in node.inputs):
        left, left_factors = product(node.inputs[0], depth - 1)
        right, right_factors = product(node.inputs[1], depth - 1)
        return left * right, left_factors + right_factors
    if node.op == "divide":
        divisor = node.inputs[1].scalar()
        if divisor:
            coefficient, factors = product(node.inputs[0], depth - 1)
            return coefficient / divisor, factors
    if node.op == "negative":
        coefficient, factors = product(node.inputs[0], depth - 1)
        return -coefficient, factors
    return 1.0, [value]


def _shapes_agree(value: Value, part: Value) -> bool:
    return part.shape == value.shape or part.size == 1


def polynomial(value: Value, x: Value, depth: int = _DEPTH) -> Polynomial | None:
    """`value` as a polynomial of `x`, or None if it is not one of small degree."""
    if value is x:
        return {1: 1.0}
    number = value.scalar()
    if number is not None:
        return {0: number}
    node = value.producer
    if node is None or depth == 0:
        return None
    parts: list[Polynomial] = []
    for value in node.inputs:
        part = polynomial(value, x, depth - 1) if node.op in _ALGEBRA else None
        if part is None:
            return None
        parts.append(part)
    return _combine(node.op, parts)


def _combine(op: str, parts: list[Polynomial]) -> Polynomial | None:
    if op == "negative":
        return _times(parts[0], {0: -1.0})
    if op == "square":
        return _times(parts[0], parts[0])
    if op == "add":
        return _plus(parts[0], parts[1])
    if op == "subtract":
        return _plus(parts[0], _times(parts[1], {0: -1.0}) or {})
    if op == "multiply":
        return _times(parts[0], parts[1])
    if op == "divide" and set(parts[1]) == {0} and parts[1][0] != 0.0:
        return _times(parts[0], {0: 1.0 / parts[1][0]})
    if op == "power" and set(parts[1]) == {0} and parts[1][0] in (1.0, 2.0, 3.0, 4.0):
        result: Polynomial | None = parts[0]
        for _ in range(int(parts[1][0]) - 1):
            result = None if result is None else _times(result, parts[0])
        return result
    return None


def _plus(left: Polynomial, right: Polynomial) -> Polynomial:
    return {degree: left.get(degree, 0.0) + right.get(degree, 0.0) for degree in left.keys() | right.keys()}


def _times(left: Polynomial, right: Polynomial) -> Polynomial | None:
    result: Polynomial = {}
    for a, x in left.items():
        for b, y in right.items():
            if a + b > _MAX_DEGREE:
                return None
            result[a + b] = result.get(a + b, 0.0) + x * y
    return result


def close(found: Polynomial | None, wanted: Polynomial, tolerance: float = 1e-5) -> bool:
    """Whether two polynomials have the same coefficients, to the accuracy of fp32 constants."""
    if found is None:
        return False
    return all(
        abs(found.get(degree, 0.0) - wanted.get(degree, 0.0))
        <= tolerance * max(abs(wanted.get(degree, 0.0)), 1e-2)
        for degree in found.keys() | wanted.keys()
    )
