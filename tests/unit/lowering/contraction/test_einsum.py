"""Einstein sums: the values of NumPy, as products wherever there is something to sum up."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from host.lowering.ops.contraction.einsum import terms
from tests.unit.lowering.harness import check, functions, lowered, normal, run_lowered, weight

op = relax.op


def _einsum(equation: str):
    return lambda bb, *tensors: op.einsum(relax.Tuple(list(tensors)), equation)


@pytest.mark.parametrize(
    ("equation", "shapes", "kernel"),
    [
        ("bhlk,bhtk->bhlt", [(1, 2, 5, 8), (1, 2, 7, 8)], "matmul"),
        ("bhlt,bhtv->bhlv", [(1, 2, 5, 7), (1, 2, 7, 8)], "matmul"),
        ("bij,bjk", [(2, 3, 4), (2, 4, 5)], "matmul"),
        ("...ij,...jk->...ik", [(2, 2, 3, 4), (2, 2, 4, 5)], "matmul"),
        ("i...j,jk->k...i", [(3, 2, 4), (4, 5)], "matmul"),
        ("bchw,bkc->bkhw", [(1, 6, 4, 4), (1, 3, 6)], "matmul"),
        ("abc,cd,de->abe", [(2, 3, 4), (4, 5), (5, 6)], "matmul"),
        ("bijk,bijl->bkl", [(2, 3, 4, 5), (2, 3, 4, 6)], "matmul"),
        ("bi,bi->b", [(4, 9), (4, 9)], "matmul"),
        ("ijx,jk->ik", [(3, 4, 2), (4, 5)], "matmul"),
        ("i,j->ij", [(5,), (7,)], "multiply"),
        ("bqc,bkc->bqkc", [(2, 3, 4), (2, 5, 4)], "multiply"),
        ("ijk->kj", [(2, 3, 4)], "sum"),
    ],
)
def test_values_and_kernels(equation: str, shapes: list[tuple[int, ...]], kernel: str) -> None:
    inputs = [normal(*shape) for shape in shapes]
    model = check(_einsum(equation), inputs)
    assert any(kernel in name for name in functions(model)), functions(model)
    wanted = np.einsum(equation, *inputs)
    np.testing.assert_allclose(run_lowered(model, inputs)[0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("equation", ["bij,jk->bik", "jk,bij->bik"])
def test_constant_operand_is_a_weight(equation: str) -> None:
    def build(bb, x):
        constant = weight(4, 24)
        return op.einsum(relax.Tuple([x, constant] if equation.startswith("b") else [constant, x]), equation)

    model = check(build, [normal(2, 3, 4)])
    assert any("packed_dense" in name for name in functions(model))


def test_transposed_keys_are_read_as_attention() -> None:
    def build(bb, q, k, v):
        scores = bb.emit(op.einsum(relax.Tuple([q, k]), "bhlk,bhtk->bhlt"))
        scaled = bb.emit(op.multiply(scores, relax.const(0.125, "float32")))
        shares = bb.emit(op.nn.softmax(scaled, axis=-1))
        return op.einsum(relax.Tuple([shares, v]), "bhlt,bhtv->bhlv")

    inputs = [normal(1, 2, 64, 64), normal(1, 2, 96, 64), normal(1, 2, 96, 64)]
    assert any("attention" in name for name in functions(check(build, inputs)))


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [("ii->i", [(4, 4)]), ("ij,jk->ik", [(3, 1), (4, 5)]), ("ij,ij->", [(3, 4), (3, 4)])],
)
def test_what_products_cannot_say_is_right_too(equation: str, shapes: list[tuple[int, ...]]) -> None:
    inputs = [normal(*shape) for shape in shapes]
    found = run_lowered(lowered(_einsum(equation), inputs), inputs)[0]
    np.testing.assert_allclose(found, np.einsum(equation, *inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("equation", "ranks"), [("ij->ii", [2]), ("ii", [2]), ("ij,jk->ik", [2]), ("ij->k", [2]), ("ij->i", [3])]
)
def test_equations_that_are_left_alone(equation: str, ranks: list[int]) -> None:
    assert terms(equation, ranks) is None


def test_labels_of_an_equation() -> None:
    assert terms("b...i, ij", [4, 2]) == (
        [("b", "...1", "...0", "i"), ("i", "j")],
        ("...1", "...0", "b", "j"),
    )
