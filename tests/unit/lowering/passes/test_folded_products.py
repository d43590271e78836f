"""Products and norms of constants are computed while the model is compiled."""

from __future__ import annotations

import pytest
from tvm import relax

from tests.unit.lowering.harness import check, functions, lowered, normal, weight

op = relax.op


def constant(*shape: int, seed: int = 3) -> relax.Expr:
    """A constant of normally distributed numbers."""
    return relax.const(normal(*shape, seed=seed))


def test_projected_positions_are_a_constant() -> None:
    """Relative positions as in DeBERTa: a table, its norm, its projection, and its heads in front."""

    def build(bb, x):
        table = constant(24, 32)
        norm = bb.emit(op.nn.layer_norm(table, constant(32, seed=4), constant(32, seed=5), axes=[-1]))
        keys = bb.emit(op.reshape(bb.emit(op.matmul(norm, weight(32, 32))), (24, 2, 16)))
        return op.matmul(x, bb.emit(op.permute_dims(keys, [1, 2, 0])))

    model = check(build, [normal(2, 8, 16)], rtol=1e-4, atol=1e-4)
    [only] = functions(model)
    assert "matmul" in only


@pytest.mark.parametrize("batch", [(), (3,)])
def test_products_of_constants(batch: tuple[int, ...]) -> None:
    def build(bb, x):
        product = bb.emit(op.matmul(constant(*batch, 6, 10), constant(*batch, 10, 4)))
        return op.add(x, product)

    model = check(build, [normal(*batch, 6, 4)])
    assert functions(model) == ["fused_add"]


def test_an_rms_norm_of_a_constant() -> None:
    def build(bb, x):
        norm = bb.emit(op.nn.rms_norm(constant(4, 12), constant(12, seed=4), axes=[-1]))
        return op.add(x, norm)

    assert functions(check(build, [normal(4, 12)])) == ["fused_add"]


def test_a_product_that_takes_long_is_left_to_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    from host.lowering.ops.contraction import dense

    monkeypatch.setattr(dense, "_MOST_FOLDED", 6 * 10 * 4 - 1)

    def build(bb, x):
        return op.add(x, bb.emit(op.matmul(constant(6, 10), constant(10, 4))))

    assert any("matmul" in name or "dense" in name for name in functions(lowered(build, [normal(6, 4)])))
