"""Determinants of the small matrices that models hold."""

from __future__ import annotations

from typing import Any

from tvm import relax, te

from host.importers.shared.linear_systems import pivots

# Rows above which the expansion, of as many products as there are permutations, is not written.
MAX_EXPANDED = 4


def determinants(builder: relax.BlockBuilder, matrices: Any) -> Any:
    """Determinants (...) of matrices (..., N, N): by expansion along the first row, of larger ones by pivots.

    Raises:
        ImportFailed: see `host.importers.shared.linear_systems.pivots`.
    """
    kind = builder.normalize(matrices).ty
    sizes = [int(size) for size in kind.shape]
    size = sizes[-1]
    if size == 0:
        # The product of no numbers.
        return builder.emit(relax.op.full(sizes[:-2], relax.const(1.0, str(kind.dtype)), str(kind.dtype)))
    if size > MAX_EXPANDED:
        return builder.emit(relax.op.prod(pivots(builder, matrices), -1))

    def determinant(element: Any, rows: tuple[int, ...], columns: tuple[int, ...]) -> Any:
        if len(rows) == 1:
            return element(rows[0], columns[0])
        total: Any = None
        for position, column in enumerate(columns):
            rest = columns[:position] + columns[position + 1 :]
            term = element(rows[0], column) * determinant(element, rows[1:], rest)
            term = -term if position % 2 else term
            total = term if total is None else total + term
        return total

    def compute(data: te.Tensor) -> te.Tensor:
        order = tuple(range(size))

        def at(*outer: Any) -> Any:
            return determinant(lambda i, j: data(*outer, i, j), order, order)

        return te.compute(data.shape[:-2], at, name="determinant")

    return builder.emit_te(compute, matrices, primfunc_name_hint="determinant")
