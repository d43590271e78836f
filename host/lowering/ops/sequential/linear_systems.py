"""Linear systems, pivots and Cholesky factors of small matrices, one matrix of a batch a step.

`linear_solution`: inputs are matrices A (B, N, N) and right sides (B, N, K); the output X (B, N, K) has
A X = right. With the attribute `triangle` "lower" or "upper", only that triangle of A is read, and with
`unit` its diagonal counts as ones. Without it, rows are eliminated with partial pivoting, as in LAPACK's
`getrf`. A matrix without an inverse gives infinities or NaN.

`matrix_pivots`: the input is A (B, N, N); the output (B, N) has the diagonal of its upper factor. The first
one has the sign of the permutation of rows, so that the product of all is the determinant.

`cholesky`: the input is A (B, N, N), of which the lower triangle is read; the output L (B, N, N) is lower
triangular, and L times its transpose is A. A matrix that is not positive definite gives NaN.
"""

from __future__ import annotations

import json

from tvm import tirx

from host.lowering.builder import Builder
from host.lowering.graph import Node, Value
from host.lowering.reader.call import OperatorCall
from host.lowering.script import buffer_text, function_of_script, step_text
from host.lowering.spec import FunctionWriter, OpSpec, Reader

SOLUTION, PIVOTS, CHOLESKY = "linear_solution", "matrix_pivots", "cholesky"
# Elements of a matrix up to which its copy is on the stack of a thread.
_MOST_ON_STACK = 1 << 10


def _reader(operation: str) -> Reader:
    def read(builder: Builder, call: OperatorCall) -> Value:
        *tensors, options = call.arguments
        return builder.emit(operation, tensors, json.loads(options.value), call.outputs)[0]

    return read


def solution_function(node: Node) -> tirx.PrimFunc:
    """The function of a "linear_solution" node; arguments are its inputs and then its output."""
    matrices, right = node.inputs
    _, size, columns = right.shape
    triangle = node.attrs["triangle"]
    body = [f"for i, k in T.grid({size}, {columns}):", "    result[vb, i, k] = right[vb, i, k]"]
    if triangle:
        body += _substituted("matrices[vb, {}]", size, columns, triangle == "lower", node.attrs["unit"])
    else:
        rows_of = [("left", "", size), ("result", "vb, ", columns)]
        body += [*_copied(matrices), *_eliminated(size, matrices.dtype, rows_of)]
        body += _substituted("left[{}]", size, columns, False, False)
    return _function(node, ["matrices", "right"], body)


def pivots_function(node: Node) -> tirx.PrimFunc:
    """The function of a "matrix_pivots" node; arguments are its input and then its output."""
    size, dtype = node.inputs[0].shape[1], node.inputs[0].dtype
    sign = f"T.if_then_else(swaps[0] % 2 == 0, T.{dtype}(1), T.{dtype}(-1))"
    body = [
        *_copied(node.inputs[0]),
        *_eliminated(size, dtype, [("left", "", size)]),
        f"for i in range({size}):",
        "    result[vb, i] = left[i, i]",
        f"result[vb, 0] = result[vb, 0] * {sign}",
    ]
    return _function(node, ["matrices"], body)


def cholesky_function(node: Node) -> tirx.PrimFunc:
    """The function of a "cholesky" node, column by column; arguments are its input and then its output."""
    size = node.output.shape[1]
    body = [
        f"for j in range({size}):",
        "    for i in range(j):",
        f"        result[vb, i, j] = T.{node.output.dtype}(0)",
        f"    for i in range({size} - j):",
        "        factor[0] = matrices[vb, j + i, j]",
        "        for k in range(j):",
        "            factor[0] = factor[0] - result[vb, j + i, k] * result[vb, j, k]",
        "        if i == 0:",
        "            result[vb, j, j] = T.sqrt(factor[0])",
        "        else:",
        "            result[vb, j + i, j] = factor[0] / result[vb, j, j]",
    ]
    return _function(node, ["matrices"], body)


def _function(node: Node, names: list[str], body: list[str]) -> tirx.PrimFunc:
    """A function whose block does `body` for the matrix `vb`."""
    dtype, (batch, size, _) = node.inputs[0].dtype, node.inputs[0].shape
    arguments = [*zip(names, node.inputs, strict=True), ("result", node.output)]
    whole = {name: ", ".join(f"0:{extent}" for extent in value.shape[1:]) for name, value in arguments}
    scope = ', scope="local"' if size * size <= _MOST_ON_STACK else ""
    lines = "\n".join(" " * 12 + line for line in body)
    return function_of_script(f"""
@T.prim_func(s_tir=True, private=True)
def function({", ".join(f"{name}: {buffer_text(value)}" for name, value in arguments)}) -> None:
    for b in range({batch}):
        with T.sblock("matrix"):
            vb = T.axis.spatial({batch}, b)
            {step_text(2 * size, "matrices")}
            T.reads({", ".join(f"{name}[vb, {whole[name]}]" for name in names)})
            T.writes(result[vb, {whole["result"]}])
            left = T.sblock_alloc_buffer(({size}, {size}), "{dtype}"{scope})
            # The row of the largest element of a column, and how often rows were exchanged.
            row = T.sblock_alloc_buffer((1,), "int32", scope="local")
            swaps = T.sblock_alloc_buffer((1,), "int32", scope="local")
            factor = T.sblock_alloc_buffer((1,), "{dtype}", scope="local")
{lines}
""")


def _copied(matrices: Value) -> list[str]:
    size = matrices.shape[1]
    return [f"for i, j in T.grid({size}, {size}):", "    left[i, j] = matrices[vb, i, j]"]


def _eliminated(size: int, dtype: str, rows_of: list[tuple[str, str, int]]) -> list[str]:
    """Lines that make `left` upper triangular, and do with the rows of other buffers what they do with its.

    A column without anything but zeros is left as it is.

    Args:
        size: N.
        dtype: of the elements.
        rows_of: name, indices before the row, and columns of each buffer, `left` among them.
    """
    lines = [
        "swaps[0] = 0",
        f"for p in range({size}):",
        "    row[0] = p",
        f"    for i in range({size} - 1 - p):",
        "        if T.abs(left[p + 1 + i, p]) > T.abs(left[row[0], p]):",
        "            row[0] = p + 1 + i",
        "    if row[0] != p:",
        "        swaps[0] = swaps[0] + 1",
    ]
    for name, before, columns in rows_of:
        lines += [
            f"        for k in range({columns}):",
            f"            factor[0] = {name}[{before}p, k]",
            f"            {name}[{before}p, k] = {name}[{before}row[0], k]",
            f"            {name}[{before}row[0], k] = factor[0]",
        ]
    pivot = "left[p, p]"
    lines += [
        f"    for i in range({size} - 1 - p):",
        f"        factor[0] = left[p + 1 + i, p] / {pivot}",
        f"        factor[0] = T.if_then_else({pivot} == T.{dtype}(0), T.{dtype}(0), factor[0])",
    ]
    for name, before, columns in rows_of:
        below, above = f"{name}[{before}p + 1 + i, k]", f"{name}[{before}p, k]"
        lines += [
            f"        for k in range({columns}):",
            f"            {below} = {below} - factor[0] * {above}",
        ]
    return lines


def _substituted(matrix: str, size: int, columns: int, lower: bool, unit: bool) -> list[str]:
    """Lines that solve a triangular system in place, row by row: from the first one, or from the last."""
    row, other = ("p", "i") if lower else (f"{size - 1} - p", f"{size - 1} - i")
    own, solved = f"result[vb, {row}, k]", f"result[vb, {other}, k]"
    lines = [
        f"for p in range({size}):",
        "    for i in range(p):",
        f"        for k in range({columns}):",
        f"            {own} = {own} - {matrix.format(f'{row}, {other}')} * {solved}",
    ]
    if unit:
        return lines
    diagonal = matrix.format(f"{row}, {row}")
    return [*lines, f"    for k in range({columns}):", f"        {own} = {own} / {diagonal}"]


def _spec(operation: str, function: FunctionWriter) -> OpSpec:
    return OpSpec(operation, read={f"edgetlm.{operation}": _reader(operation)}, function=function)


SPECS: tuple[OpSpec, ...] = (
    _spec(SOLUTION, solution_function),
    _spec(PIVOTS, pivots_function),
    _spec(CHOLESKY, cholesky_function),
)
