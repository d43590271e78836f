"""Quantised torch programs beside torch: scales that are known, of tensors and of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from device_agent.contract.pt2.archive import check_archive, load_libraries
from host.errors import ImportFailed
from host.importers import load_here
from host.importers.torch.importer import export_module
from host.lowering import lower
from tests.unit.importers.torch.lowered_programs import compare_lowered
from tests.unit.importers.torch.test_operators import drawn, imported
from tests.unit.lowering.harness import board, run_lowered

load_libraries({"quantized_decomposed"})
library = torch.ops.quantized_decomposed
BYTES = (-128, 127, torch.int8)


def paired(x: torch.Tensor, scale: float, zero: int, low: int, high: int, dtype: torch.dtype) -> torch.Tensor:
    """A tensor with what quantisation leaves of it."""
    numbers = library.quantize_per_tensor(x, scale, zero, low, high, dtype)
    return library.dequantize_per_tensor(numbers, scale, zero, low, high, dtype)


def test_integers_with_one_scale() -> None:
    def quantised(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        narrow = library.quantize_per_tensor(x, 0.02, 3, -127, 120, torch.int8)
        return narrow, paired(x, 0.03, 140, 0, 255, torch.uint8), paired(x, 0.1, -7, *BYTES)

    compare_lowered(quantised, 3 * drawn(5, 7))


def test_integers_with_a_scale_for_each_channel() -> None:
    scales, zeros = torch.tensor([0.02, 0.5, 0.1]), torch.tensor([1, -3, 0])

    def quantised(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        numbers = library.quantize_per_channel(x, scales, zeros, 1, *BYTES)
        return numbers, library.dequantize_per_channel(numbers, scales.double(), zeros, 1, *BYTES)

    compare_lowered(quantised, 3 * drawn(2, 3, 4))


def test_what_quantisation_leaves_of_numbers() -> None:
    scales, zeros = torch.tensor([0.02, 0.5, 0.1]), torch.tensor([1, 3, 0], dtype=torch.int32)

    def rounded(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        channels = torch.fake_quantize_per_channel_affine(x, scales, zeros, 1, -8, 7)
        return channels, torch.fake_quantize_per_tensor_affine(x, 0.1, 100, 0, 255)

    compare_lowered(rounded, 3 * drawn(2, 3, 4))


def test_zero_points_that_their_type_does_not_hold() -> None:
    zeros = torch.tensor([-200, 3, 500])

    def quantised(x: torch.Tensor, zero: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scales, numbers = torch.tensor([0.5, 0.25, 0.125]), (40 * x).to(torch.int8)
        one = library.quantize_per_tensor(x, 0.25, 300, 0, 255, torch.uint8)
        channels = library.quantize_per_channel(x, scales, zeros, 1, *BYTES)
        reals = library.dequantize_per_channel(channels, scales, zeros, 1, *BYTES)
        given = library.quantize_per_tensor(x, scales[1], zero, *BYTES)
        back = library.dequantize_per_tensor(given, scales[1], zero, *BYTES)
        return one, paired(x, 0.25, -200, -100, 100, torch.int8), channels, reals, given, back, numbers

    for zero in (-150, 7):
        compare_lowered(quantised, 60 * drawn(2, 3, 4), torch.tensor(zero), rtol=0, atol=0)


def test_zero_points_of_channels_between_whole_numbers() -> None:
    def real(x: torch.Tensor) -> torch.Tensor:
        scales, zeros = torch.tensor([0.1, 0.2]), torch.tensor([0.5, 1.5])
        return library.dequantize_per_channel((9 * x).to(torch.int8), scales, zeros, 1, *BYTES)

    compare_lowered(real, drawn(3, 2))


def test_zero_points_of_bytes_keep_integers() -> None:
    def quantised(x: torch.Tensor) -> torch.Tensor:
        scales, zeros = torch.tensor([0.1, 0.2]), torch.tensor([3, -5])
        return library.quantize_per_channel(x, scales, zeros, 1, *BYTES)

    assert "relax.quantize" in imported(quantised, drawn(3, 2)).script(show_meta=False).replace(
        "R.", "relax."
    )


def test_zero_points_between_whole_numbers_are_refused() -> None:
    def rounded(x: torch.Tensor) -> torch.Tensor:
        scales, zeros = torch.tensor([0.1, 0.2]), torch.tensor([0.0, 1.5])
        return torch.fake_quantize_per_channel_affine(x, scales, zeros, 1, -8, 7)

    with pytest.raises(ImportFailed, match=r"fake_quantize_per_channel.*has no conversion of these types"):
        imported(rounded, drawn(3, 2))


def test_scales_that_follow_from_the_data() -> None:
    def quantised(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scale, zero = library.choose_qparams(x, -128, 127, 1e-5, torch.int8)
        numbers = library.quantize_per_tensor(x, scale, zero, *BYTES)
        symmetric, middle = library.choose_qparams_symmetric(x, -127, 127, 1e-5, torch.int8)
        whole = library.quantize_per_tensor(x, symmetric, middle, -127, 127, torch.int8)
        return scale, zero, library.dequantize_per_tensor(numbers, scale, zero, *BYTES), symmetric, whole

    compare_lowered(quantised, drawn(4, 6) + 1)
    compare_lowered(quantised, drawn(4, 6).abs() + 1)


@pytest.mark.parametrize("symmetric", [False, True])
def test_scales_of_rows(symmetric: bool) -> None:
    choose = library.choose_qparams_per_token if symmetric else library.choose_qparams_per_token_asymmetric

    def quantised(x: torch.Tensor) -> torch.Tensor:
        scales, zeros = choose(x, torch.int8)
        numbers = library.quantize_per_token(x, scales, zeros, *BYTES)
        # For the one operator, torch says that scales are of double precision, and makes single ones.
        return library.dequantize_per_token(numbers, scales, zeros, *BYTES, torch.float32)

    compare_lowered(quantised, drawn(2, 4, 6) * torch.arange(1.0, 5)[:, None] + 0.5)


class _Quantised(nn.Module):
    """A convolution and a product as PyTorch's quantiser writes them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kernel", (40 * drawn(8, 4, 3, 3)).clamp(-127, 127).to(torch.int8))
        self.register_buffer("scales", torch.linspace(0.001, 0.01, 8))
        self.register_buffer("zeros", torch.zeros(8, dtype=torch.int64))
        self.register_buffer("matrix", (40 * drawn(5, 8)).clamp(-127, 127).to(torch.int8))
        self.bias = nn.Parameter(drawn(8))

    def forward(self, x: torch.Tensor) -> Any:
        bounds = (-127, 127, torch.int8)
        kernel = library.dequantize_per_channel(self.kernel, self.scales, self.zeros, 0, *bounds)
        made = functional.conv2d(paired(x, 0.02, 4, *BYTES), kernel, self.bias, padding=1)
        made = paired(functional.relu(made), 0.03, -128, *BYTES)
        pooled = paired(functional.adaptive_avg_pool2d(made, 1), 0.03, -128, *BYTES).flatten(1)
        matrix = library.dequantize_per_tensor(self.matrix, 0.01, 0, *bounds)
        return paired(functional.linear(pooled, matrix), 0.05, 0, *BYTES)


def test_a_quantised_archive_is_computed_in_integers(tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    module = _Quantised().requires_grad_(False)
    export_module(module, [drawn(1, 4, 12, 12)], path)
    assert check_archive(str(path)) == {"aten", "quantized_decomposed"}
    model = load_here(path, golden_cases=1)
    assert model.module is not None, model.reason
    lowered = lower(model, board())
    stages = " ".join(task.function.script() for task in lowered.tasks)
    assert '"int8"' in stages and '"int32"' in stages
    # No weight is kept as floats.
    assert sum(one.nbytes for one in lowered.parameters if one.dtype.kind == "f") < 8 * 4 * 3 * 3
    case = model.golden[0]
    for made, wanted in zip(run_lowered(lowered, case.inputs), case.outputs, strict=True):
        # A sum between two integers falls to either side.
        torch.testing.assert_close(torch.from_numpy(made), torch.from_numpy(wanted), rtol=0, atol=0.0501)
