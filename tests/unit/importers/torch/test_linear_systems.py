"""Linear systems, inverses, determinants and Cholesky factors in torch programs, beside torch."""

from __future__ import annotations

import pytest
import torch

from host.errors import ImportFailed
from host.importers.shared.linear_systems import MAX_ROWS
from tests.unit.importers.torch.lowered_programs import compare_lowered
from tests.unit.importers.torch.test_operators import drawn, imported


def definite(*shape: int) -> torch.Tensor:
    """Symmetric positive definite matrices."""
    rows = drawn(*shape)
    return rows @ rows.mT + torch.eye(shape[-1])


def permuted(*shape: int) -> torch.Tensor:
    """Matrices with zeros on their diagonals, which nothing can be divided by."""
    return (torch.eye(shape[-1]).roll(1, 0) * 3 + 0.1 * drawn(*shape)) * (1 - torch.eye(shape[-1]))


def test_solutions_of_linear_systems() -> None:
    def solved(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        right = torch.linalg.solve(a.mT, b.mT, left=False)
        one, shared = torch.linalg.solve(a[0], b[0, :, 0]), torch.linalg.solve(a[0], b)
        return torch.linalg.solve(a, b), torch.linalg.solve(a, b[..., 1]), right, one, shared

    compare_lowered(solved, permuted(2, 6, 6), drawn(2, 6, 3))
    compare_lowered(solved, drawn(2, 1, 1) + 3, drawn(2, 1, 2))


def test_inverses() -> None:
    def inverted(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.linalg.inv(a), torch.linalg.inv_ex(a[0, 0])[0], torch.linalg.matrix_power(a, -2)

    compare_lowered(inverted, permuted(2, 3, 5, 5))


def test_inverses_of_double_precision_and_of_larger_matrices() -> None:
    compare_lowered(torch.linalg.inv, definite(2, 4, 4).double(), rtol=1e-12, atol=1e-12)
    compare_lowered(torch.linalg.inv, definite(1, 40, 40), atol=1e-4)


def test_matrices_without_an_inverse_give_no_finite_numbers() -> None:
    def inverted(a: torch.Tensor) -> torch.Tensor:
        return torch.linalg.inv_ex(a)[0].isfinite().all((1, 2))

    matrices = torch.stack([torch.zeros(3, 3), torch.eye(3), torch.full((3, 3), float("nan"))])
    compare_lowered(inverted, matrices)


def test_determinants_of_matrices_without_rows_are_1() -> None:
    compare_lowered(lambda a: torch.det(a), torch.zeros(2, 0, 0))


def test_determinants_of_larger_matrices() -> None:
    def measured(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.det(a), *torch.linalg.slogdet(a), torch.logdet(a)

    matrices = torch.cat([permuted(3, 6, 6), torch.ones(1, 6, 6), definite(1, 6, 6)])
    matrices[1, [0, 1]] = matrices[1, [1, 0]]
    assert len(matrices.det().sign().unique()) == 3
    compare_lowered(measured, matrices, rtol=1e-3)


@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_factors(upper: bool) -> None:
    def factored(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        factors = torch.linalg.cholesky(a, upper=upper)
        inverse = torch.cholesky_inverse(factors, upper=upper)
        return factors, torch.cholesky_solve(b, factors, upper=upper), inverse

    compare_lowered(factored, definite(2, 5, 5), drawn(2, 5, 3))
    # Only one triangle is read.
    triangle = definite(2, 5, 5).triu() if upper else definite(2, 5, 5).tril()
    compare_lowered(lambda a: torch.linalg.cholesky_ex(a, upper=upper)[0], triangle)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_triangular_systems(upper: bool, left: bool) -> None:
    def solved(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        options = {"upper": upper, "left": left}
        plain = torch.linalg.solve_triangular(a, b, **options)
        shared = torch.linalg.solve_triangular(a[0], b, **options)
        return plain, shared, torch.linalg.solve_triangular(a, b, unitriangular=True, **options)

    compare_lowered(solved, 0.3 * drawn(2, 4, 4) + 2 * torch.eye(4), drawn(2, 4, 4))


@pytest.mark.filterwarnings("ignore:torch.triangular_solve")
def test_triangular_systems_of_the_older_operator() -> None:
    def solved(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        options = [(upper, turned) for upper in (False, True) for turned in (False, True)]
        return tuple(torch.triangular_solve(b, a, *one)[0] for one in options)

    compare_lowered(solved, 0.3 * drawn(2, 4, 4) + 2 * torch.eye(4), drawn(2, 4, 3))


def test_a_step_of_a_filter() -> None:
    """The update of a Kalman filter, with a gain from the covariance of the measurement."""

    def updated(state: torch.Tensor, spread: torch.Tensor, seen: torch.Tensor) -> tuple[torch.Tensor, ...]:
        observed = torch.eye(6)[:3]
        gain = torch.linalg.solve(observed @ spread @ observed.T + 0.1 * torch.eye(3), observed @ spread).mT
        state = state + (gain @ (seen - observed @ state[..., None]))[..., 0]
        return state, (torch.eye(6) - gain @ observed) @ spread

    compare_lowered(updated, drawn(4, 6), definite(4, 6, 6), drawn(4, 3, 1))


def test_what_is_too_large_is_refused_with_its_size() -> None:
    size = MAX_ROWS + 1
    with pytest.raises(ImportFailed, match=rf"linalg_inv_ex.*{size} x {size} cannot be factorised"):
        imported(torch.linalg.inv, definite(size, size))


def test_factors_that_are_read_are_refused() -> None:
    with pytest.raises(ImportFailed, match="linalg_lu_factor"):
        imported(lambda a: torch.linalg.lu_factor(a)[0], definite(3, 3))
    with pytest.raises(ImportFailed, match="linalg_inv_ex"):
        imported(lambda a: torch.linalg.inv_ex(a)[1], definite(3, 3))
