"""Functions of whole rows, of linear algebra and of complex numbers in torch programs, beside torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from host.errors import ImportFailed, ModelFileError
from host.importers import load_here
from host.importers.shared.fourier import MAX_LENGTH
from host.importers.torch.importer import export_module
from host.importers.torch.ranges import input_ranges
from host.model import TensorSpec
from tests.unit.importers.torch.lowered_programs import compare_lowered
from tests.unit.importers.torch.test_operators import Calls, drawn, imported, whole


def test_extremes_and_sums_so_far() -> None:
    def scanned(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return *torch.cummax(x, 1), *torch.cummin(x, -1), torch.logcumsumexp(x, 0)

    compare_lowered(scanned, drawn(4, 13, 3))
    compare_lowered(lambda x: (*torch.cummax(x, 1), *torch.cummin(x, 0)), whole(3, 5, 17))


def test_elements_by_their_order() -> None:
    def ordered(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return *torch.kthvalue(x, 3, 1), *torch.median(x, 0, True), torch.median(x)

    compare_lowered(ordered, drawn(4, 9))
    compare_lowered(lambda x: torch.nanmedian(x, 1), drawn(3, 8))


def test_the_most_frequent_element() -> None:
    compare_lowered(lambda x: (*torch.mode(x, 1), *torch.mode(x, 0, True)), whole(4, 6, 13))


def test_norms_and_distances() -> None:
    def measured(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        powers = (0, 1, 2, 3, float("inf"), float("-inf"))
        norms = (torch.linalg.vector_norm(x, one, 1, keepdim=True) for one in powers)
        distances = (torch.cdist(x, y, one) for one in powers[:-1])
        matrices = torch.linalg.norm(x), torch.linalg.matrix_norm(x, 1), torch.linalg.matrix_norm(x)
        of_all = torch.ops.aten.linalg_vector_norm(x, 2.0, [], True)
        return *norms, *distances, *matrices, of_all, functional.pdist(x[0]), functional.pdist(x[0], 1.0)

    compare_lowered(measured, drawn(2, 4, 5).round(), drawn(2, 3, 5).round())


def test_cross_products_and_determinants() -> None:
    def made(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        products = torch.cross(x, y, dim=1), torch.linalg.cross(x, y)
        return *products, torch.linalg.det(x), torch.det(x[0, :2, :2])

    compare_lowered(made, drawn(4, 3, 3), drawn(4, 3, 3))


@pytest.mark.parametrize("place", [2, 0, -1])
def test_a_place_that_is_an_input(place: int) -> None:
    def chosen(x: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x[at], x[:, at] * 2

    compare_lowered(chosen, drawn(4, 3), torch.tensor(place))
    program = torch.export.export(Calls(chosen), (drawn(4, 3), torch.tensor(0)))
    (found,) = input_ranges(program, (TensorSpec(program.graph_signature.user_inputs[1], (), "int64"),))
    assert (found.low, found.high) == (0, 3)


def test_elements_where_a_mask_holds_one_after_another() -> None:
    def filled(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return x.masked_scatter(x[:, :1] > 0, rows)

    compare_lowered(filled, drawn(6, 5), drawn(7, 5))
    spread = lambda x, mask, rows: x.masked_scatter(mask > 0, rows)  # noqa: E731
    compare_lowered(spread, drawn(1, 5), drawn(6, 5), drawn(7, 5))


TRANSFORMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "half": lambda x: torch.view_as_real(torch.fft.rfft(x)),
    "half of a longer one": lambda x: torch.fft.rfft(x, n=16).abs(),
    "parts": lambda x: (torch.fft.fft(x).real, torch.fft.fft(x, norm="ortho").imag),
    "angles": lambda x: torch.fft.rfft(x, dim=1)[:, 1:3].angle(),
    "there and back": lambda x: torch.fft.irfft(torch.fft.rfft(x), n=9),
    "to an odd length": lambda x: torch.fft.irfft(torch.fft.rfft(x, norm="forward"), n=7, norm="forward"),
    "two axes": lambda x: torch.fft.irfft2(torch.fft.rfft2(x, norm="ortho"), s=(6, 9), norm="ortho"),
    "mixing": lambda x: torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real,
    "inverse": lambda x: torch.fft.ifftn(torch.fft.fftn(x, dim=(1, 2)), dim=(1, 2)).real,
    "parts put together": lambda x: torch.view_as_real(torch.cat(torch.fft.fft(x).split(2, 1)[::-1], 1)),
    "sums": lambda x: torch.view_as_real(torch.fft.fft(x).sum(1) + torch.fft.fft(x).mean(1) - x[:, 0]),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_fourier_transforms(name: str) -> None:
    compare_lowered(TRANSFORMS[name], drawn(2, 6, 9), atol=1e-4)


def test_transforms_of_frames() -> None:
    def framed(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        short, long = torch.hann_window(12), torch.hann_window(16)
        pairs = torch.stft(x, 16, 4, 12, window=short, center=False, return_complex=True)
        power = torch.stft(x, 16, 4, window=long, return_complex=True).abs() ** 2
        return torch.view_as_real(pairs), power

    compare_lowered(framed, drawn(2, 64), atol=1e-4)


def test_long_transforms_are_refused_with_the_operator() -> None:
    with pytest.raises(ImportFailed, match=r"_fft_r2c.* 1 to"):
        imported(lambda x: torch.fft.rfft(x).abs(), drawn(1, 2 * MAX_LENGTH))


def test_arithmetic_of_complex_numbers() -> None:
    def computed(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b = torch.view_as_complex(x), torch.view_as_complex(y)
        made = a * b, a * 2, a * 1j, a / b, a / 2, a + b, a - 1, a + y[..., 0], a.conj() * y[..., 1], a @ b.T
        return *(torch.view_as_real(one) for one in made), (a * b).abs()

    compare_lowered(computed, drawn(3, 4, 2), drawn(3, 4, 2) + 2)


def test_complex_numbers_are_computed_in_the_type_of_the_result() -> None:
    def mixed(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = torch.view_as_complex(x)
        made = a * y, a + y, a / y, y / a, torch.arange(4) * 0.5j * y, a.to(torch.complex128)
        return tuple(torch.view_as_real(one) for one in made)

    compare_lowered(mixed, drawn(3, 4, 2), drawn(3, 4).double() + 2)


def test_parts_of_complex_numbers_have_one_shape() -> None:
    def summed(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(torch.view_as_real(torch.complex(*parts).sum(0)) for parts in ((x, y), (y, x)))

    compare_lowered(summed, drawn(3, 4), drawn(1, 4))


def test_sizes_and_quotients_of_numbers_whose_squares_have_no_place() -> None:
    def computed(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b = torch.view_as_complex(x), torch.view_as_complex(y)
        return b.abs(), torch.view_as_real(a / b)

    parts = [[1e-25, 2e-25], [1e25, -1e25], [0, -0.0], [-0.0, 3], [1e-38, 0]]
    numbers = torch.tensor(parts)
    compare_lowered(computed, 2 * numbers.abs(), numbers, rtol=1e-5, atol=1e-30)


class _Rotated(nn.Module):
    """Complex numbers that a program keeps: a buffer, a weight, and a plain tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("turns", torch.polar(torch.ones(4, 1, 4), drawn(4, 1, 4)))
        self.weight = nn.Parameter(torch.view_as_complex(drawn(3, 5, 2)))
        self.plain = torch.polar(torch.ones(4, 1, 4), drawn(4, 1, 4))

    def forward(self, x: torch.Tensor, signal: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pairs = torch.view_as_complex(x.reshape(1, 4, 2, 4, 2))
        modes = torch.einsum("bi,io->bo", torch.fft.rfft(signal)[:, :3], self.weight)
        turned = torch.view_as_real(pairs * self.turns).flatten(3)
        return turned, torch.view_as_real((pairs + 1) / self.plain.conj()), torch.fft.irfft(modes, n=9)


def test_complex_numbers_that_a_program_keeps() -> None:
    module = _Rotated().requires_grad_(False)
    compare_lowered(module, drawn(1, 4, 2, 8), drawn(2, 8))


def test_what_complex_numbers_have_no_conversion_for_is_refused() -> None:
    with pytest.raises(ImportFailed, match=r"cos\.default of complex numbers"):
        imported(lambda x: torch.fft.fft(x).cos().abs(), drawn(2, 8))


@pytest.mark.parametrize(
    ("function", "given", "reason"),
    [
        (torch.fft.fft, drawn(2, 6), "output 'fft_fft' has complex numbers: return both"),
        (torch.abs, torch.fft.fft(drawn(2, 6)), "input 'inputs_0' has complex numbers: give both"),
    ],
)
def test_complex_numbers_at_the_interface_are_refused(
    function: Callable[..., torch.Tensor], given: torch.Tensor, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "program.pt2"
    export_module(Calls(function), [given], path)
    with pytest.raises(ImportFailed, match=reason):
        load_here(path)


def test_complex_weights_with_nan_are_refused(tmp_path: Path) -> None:
    module, path = _Rotated().requires_grad_(False), tmp_path / "program.pt2"
    module.weight[0, 0] = complex(1.0, float("nan"))
    export_module(module, [drawn(1, 4, 2, 8), drawn(2, 8)], path)
    with pytest.raises(ModelFileError, match="'weight' holds NaN"):
        load_here(path)


def test_products_and_truths_of_whole_numbers() -> None:
    """Products are int64, whatever holds the factors."""

    def computed(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        products = x.prod(), x.prod(1), x.cumprod(0), x.cumsum(1)
        return *products, x.all(), x.any(), x.all(1), x.any(0, keepdim=True)

    numbers = torch.tensor([[3, -5, 7, 4], [9, 8, 0, 0], [100, 2, 3, -1]], dtype=torch.int8)
    compare_lowered(computed, numbers)
    compare_lowered(computed, numbers[2:])


def test_bounds_of_another_type_or_in_the_wrong_order() -> None:
    def bounded(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.clamp(-1.5, 2.5), x.clamp(max=2.5), x.clamp(3, -2), y.clamp(2.0, -2.0), y.clamp(-0.5, 0.5)

    compare_lowered(bounded, whole(9, 6) - 4, drawn(6))


def test_sums_and_products_of_no_elements() -> None:
    def computed(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        nothing = x[:0]
        return nothing.sum(0), nothing.prod(0), nothing.mean(0), nothing.sum(), x[:, :0].sum(1, keepdim=True)

    compare_lowered(computed, drawn(3, 4))


def test_places_of_tensors_without_axes() -> None:
    """torch takes them for tensors of one element."""

    def placed(x: torch.Tensor, at: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, ...]:
        row = x.reshape(1) * torch.arange(1.0, 5)
        whole = x.scatter(0, at, value), x.scatter_add(0, at, value), x.scatter_reduce(0, at, value, "prod")
        parts = row.scatter(0, at + 2, value), row.scatter_add(-1, at + 1, value)
        return *whole, *parts, x.gather(0, at), row.gather(0, at + 3), x.scatter(0, at, 4.0)

    compare_lowered(placed, torch.tensor(3.0), torch.tensor(0), torch.tensor(5.0))


def test_sums_have_their_factors() -> None:
    def sums(x: torch.Tensor, whole: torch.Tensor) -> tuple[torch.Tensor, ...]:
        complex_one = torch.view_as_complex(x)
        together = torch.view_as_real(torch.add(complex_one, complex_one + 1, alpha=3))
        differences = torch.sub(x, whole, alpha=0.5), torch.rsub(x, whole, alpha=3), torch.rsub(x, 2, alpha=3)
        return torch.add(whole, whole + 7, alpha=200), torch.add(x, 2, alpha=3), together, *differences

    compare_lowered(sums, drawn(3, 2), torch.tensor([[1, 200]], dtype=torch.uint8))
