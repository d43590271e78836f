"""Operators that TVM's frontend lacks or converts to something else, beside torch."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import tvm
from torch import nn
from torch.nn import functional

from host.importers.normalise import normalise
from host.importers.torch.convert import convert_program
from tests.unit.lowering.harness import run


class Calls(nn.Module):
    """A function as a module of one, two or three tensors."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def imported(function: Callable[..., Any], *inputs: torch.Tensor) -> tvm.IRModule:
    """The exported function as the importer gives it to the compiler."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own code
        return normalise(convert_program(torch.export.export(Calls(function), inputs)))


def compare(function: Callable[..., Any], *inputs: torch.Tensor) -> None:
    """Fail unless the imported program computes what torch does."""
    made = run(imported(function, *inputs), [one.numpy() for one in inputs])
    wanted = function(*inputs)
    for found, one in zip(made, wanted if isinstance(wanted, tuple | list) else [wanted], strict=True):
        # Roundings differ, other than by a position or a weight.
        torch.testing.assert_close(torch.from_numpy(found), one, rtol=1e-4, atol=1e-5)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def whole(limit: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, limit, shape, generator=torch.Generator().manual_seed(limit))


def test_whole_numbers_and_floats_are_computed_in_floats() -> None:
    def promoted(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        floats = (a * 0.5, a / b, a + 1.5, 0.5 - a, a / 4, a * (b > 3), torch.where(a > 3, a, 0.25))
        return *floats, a < 2.5, a == 1.5

    compare(promoted, whole(9, 4, 5), whole(8, 4, 5) + 1)


def test_quotients_that_are_rounded() -> None:
    def divided(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        modes = ("floor", "trunc")
        whole_ones = (torch.div(a - 9, other, rounding_mode=mode) for mode in modes for other in (3, b - 4.5))
        return *whole_ones, *(torch.div(a - 9, (b * 2 - 7), rounding_mode=mode) for mode in modes)

    compare(divided, whole(19, 6, 5), whole(8, 6, 5))


def test_whole_numbers_where_a_condition_holds() -> None:
    def chosen(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.where(x > 3, x, 0), torch.where(x > 3, -100, x), torch.where(x > 3, x, torch.tensor(1))

    compare(chosen, whole(9, 4, 5))


def test_sums_and_products_of_truth_values() -> None:
    def combined(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        left, right = a > 0, b > 0
        logic = left * right, left + right, torch.maximum(left, right), torch.minimum(left, right)
        return *logic, torch.isfinite(a.log()), torch.isclose(a, b, 0.5)

    compare(combined, drawn(4, 5), drawn(5, 4).T)


def test_whole_numbers_whose_bits_are_moved() -> None:
    def shifted(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return a << 2, a >> 1, a << b, (a.to(torch.int32) - 20) >> b.to(torch.int32)

    compare(shifted, whole(50, 4, 5), whole(5, 4, 5))


def test_powers_of_two() -> None:
    compare(lambda x: x.exp2(), drawn(4, 5))


def test_the_largest_over_several_axes() -> None:
    compare(lambda x: (x.amax((0, 2)), x.amin(1, keepdim=True), x.amax()), drawn(3, 4, 5))


def test_exponential_units_and_their_scales() -> None:
    compare(lambda x: (functional.selu(x), functional.elu(x, 0.5)), drawn(4, 5))


def test_groups_that_are_normalised_and_nothing_else() -> None:
    def normalised(x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return functional.group_norm(x, 3), functional.group_norm(x, 1, scale)

    compare(normalised, drawn(2, 6, 4, 5), drawn(6))


def test_distances_of_rows() -> None:
    compare(lambda a, b: (torch.cdist(a, b), torch.cdist(a, b, 1.0)), drawn(2, 5, 4), drawn(2, 3, 4))


def test_variances_and_products() -> None:
    def reduced(x: torch.Tensor, a: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            *torch.var_mean(x, (1, 2), keepdim=True),
            *torch.var_mean(x, 0, correction=0),
            x.prod(1),
            a.prod(-1),
            (x > 9).any(),
            (a > -1).all(),
        )

    compare(reduced, drawn(3, 4, 5), whole(3, 2, 3))


def test_the_largest_along_an_axis_and_the_first_place_of_it() -> None:
    compare(lambda x: (*x.max(1), *x.min(-1, keepdim=True)), drawn(3, 4, 5).round())


def test_the_largest_of_as_many_windows_as_are_asked_for() -> None:
    compare(
        lambda image, line: (
            functional.adaptive_max_pool2d(image, (3, 4)),
            functional.adaptive_max_pool2d(image, 1),
            functional.adaptive_max_pool1d(line, 4),
        ),
        drawn(2, 3, 9, 8),
        drawn(2, 3, 9),
    )


INDICES: dict[str, Callable[..., Any]] = {
    "one, from the end": lambda x, a, b: (x[[-1, 0]], x[:, a - 3]),
    "two of the first axes": lambda x, a, b: x[a, b],
    "two of the last axes": lambda x, a, b: x[:, a, b],
    "two with another between": lambda x, a, b: x[a, :, b - 4],
    "broadcast": lambda x, a, b: x[a[:, None], b[None, :3]],
    "places of two dimensions": lambda x, a, b: x[:, torch.stack([a, b])],
}


@pytest.mark.parametrize("name", INDICES)
def test_elements_by_number(name: str) -> None:
    compare(INDICES[name], drawn(6, 6, 6), whole(5, 4), whole(4, 4))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_rows(mode: str) -> None:
    compare(
        lambda table, numbers: functional.embedding_bag(numbers, table, mode=mode),
        drawn(20, 5),
        whole(20, 4, 6),
    )


def test_bags_of_weighted_rows() -> None:
    def bags(table: torch.Tensor, numbers: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return functional.embedding_bag(numbers, table, mode="sum", per_sample_weights=weights)

    compare(bags, drawn(20, 5), whole(20, 4, 6), drawn(4, 6))


def test_rows_behind_the_last_bag_are_not_added() -> None:
    def bags(last: int) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
        return lambda table, numbers: functional.embedding_bag(
            numbers, table, torch.arange(0, last, 3), mode="sum", include_last_offset=True
        )

    table, numbers = drawn(20, 5), whole(20, 6)
    compare(bags(7), table, numbers)
    compare(bags(4), table, numbers)


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("kind", ["sum", "mean", "prod", "amax", "amin"])
def test_values_are_combined_at_their_places(kind: str, own: bool) -> None:
    def reduce(x: torch.Tensor, places: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return x.scatter_reduce(1, places, values, kind, include_self=own)

    compare(reduce, drawn(2, 5, 4), whole(4, 2, 7, 4), drawn(2, 7, 4))


def test_messages_of_a_graph_are_added_up() -> None:
    def summed(x: torch.Tensor, places: torch.Tensor, messages: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = places[:, None].expand(-1, messages.shape[1])
        return x.index_add(0, places, messages), x.scatter_add(0, rows, messages)

    compare(summed, drawn(5, 3), whole(4, 12), drawn(12, 3))


@pytest.mark.filterwarnings("ignore:The reduce argument")
def test_values_are_added_or_multiplied_at_their_places() -> None:
    def combined(x: torch.Tensor, places: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(x.scatter(1, places, values, reduce=kind) for kind in ("add", "multiply"))

    compare(combined, drawn(2, 5, 4), whole(4, 2, 7, 4), drawn(2, 7, 4))


@pytest.mark.parametrize("right", [False, True])
def test_where_values_belong_among_sorted_ones(right: bool) -> None:
    def searched(rows: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ordered = rows.sort(-1)[0]
        return (
            torch.searchsorted(ordered, values, right=right),
            torch.searchsorted(ordered[0], values, side="right" if right else "left", out_int32=True),
            torch.bucketize(values, ordered[1], right=right),
        )

    values = drawn(3, 5).round()
    values[1, 2] = math.nan
    compare(searched, drawn(3, 9).round(), values)


@pytest.mark.parametrize("added", [False, True])
def test_values_at_places_of_several_axes(added: bool) -> None:
    def written(x: torch.Tensor, a: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first = torch.ops.aten.index_put(x, [a, a - 1], values, added)
        last = torch.ops.aten.index_put(x, [None, a, torch.arange(3)], values[:, 0], added)
        return (
            first,
            last,
            torch.ops.aten.index_put(x, [None, a[:, None], torch.arange(2)], values[0, 0], added),
        )

    compare(written, drawn(4, 6, 5), torch.tensor([1, 5, 3]) % 4, drawn(3, 5))


def test_values_where_a_mask_holds() -> None:
    def written(x: torch.Tensor, mask: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, ...]:
        zeroed, rows, columns = x.clone(), x.clone(), x.clone()
        zeroed[x > 0] = 0
        rows[mask > 0] = row
        columns[:, row > 0] = -1
        return zeroed, rows, columns, torch.ops.aten.index_put(x, [mask > 0], row, True)

    compare(written, drawn(3, 4, 4), drawn(3, 4), drawn(4))


def test_windows_along_an_axis() -> None:
    compare(lambda x: (x.unfold(1, 3, 2), x.unfold(-1, 4, 1)), drawn(2, 8, 7))


def test_maximum_pooling_without_steps_of_its_own() -> None:
    def pooled(x: torch.Tensor, volume: torch.Tensor) -> tuple[torch.Tensor, ...]:
        image = functional.max_pool2d(x, 2, dilation=2), functional.max_pool2d(x, 3, 2, 1, ceil_mode=True)
        return *image, functional.max_pool3d(volume, 2)

    compare(pooled, drawn(2, 3, 9, 8), drawn(1, 2, 5, 6, 7))


def test_places_of_maxima_and_what_is_put_back_there() -> None:
    def pooled(x: torch.Tensor, volume: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made, places = functional.max_pool2d(x, 2, return_indices=True)
        options = {"kernel_size": (3, 2), "stride": (2, 1), "padding": 1, "dilation": (1, 2)}
        found = functional.max_pool2d(x, **options, return_indices=True, ceil_mode=True)
        inner = functional.max_pool3d(volume, 3, 2, 1, return_indices=True)
        return functional.max_unpool2d(made, places, 2, output_size=x.shape), places, *found, *inner

    compare(pooled, drawn(2, 3, 9, 8), drawn(1, 2, 5, 6, 7))


def test_sums_of_windows_over_a_number_of_their_own() -> None:
    def pooled(x: torch.Tensor, volume: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            functional.avg_pool2d(x, 2, divisor_override=3),
            functional.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=1),
            functional.avg_pool3d(volume, (2, 3, 2), divisor_override=5),
        )

    compare(pooled, drawn(2, 3, 9, 8), drawn(1, 2, 5, 6, 7))


def test_maximum_pooling_without_a_batch() -> None:
    """A volume without one has as many axes as a batch of images."""
    compare(lambda x: functional.max_pool3d(x, 2, 1), drawn(2, 5, 6, 7))
    compare(lambda x: functional.max_pool2d(x, 2, 1), drawn(2, 6, 7))


def test_the_largest_few_in_any_order() -> None:
    compare(lambda x: x.topk(3, 1, sorted=False)[0].sum(1), drawn(2, 8, 7))


def test_the_largest_none_are_empty() -> None:
    compare(lambda x: tuple(x.topk(0, 1)), drawn(2, 8, 7))


@pytest.mark.parametrize("descending", [False, True])
def test_sorts_that_keep_equal_elements_in_their_order(descending: bool) -> None:
    def ordered(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first = torch.sort(x, stable=True, dim=1, descending=descending)
        return *first, torch.argsort(x, stable=True, descending=descending)

    compare(ordered, whole(4, 2, 40, 3))
    compare(lambda x: tuple(torch.sort(x, 0, descending)), drawn(50, 3))


def test_transposed_convolutions_of_volumes() -> None:
    def enlarged(x: torch.Tensor, kernel: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return functional.conv_transpose3d(x, kernel, bias, 2, 1, (1, 0, 1))

    compare(enlarged, drawn(1, 2, 4, 3, 5), drawn(2, 3, 3, 3, 3), drawn(3))


def test_blocks_that_overlap_are_added_up() -> None:
    compare(lambda x: functional.fold(x, (6, 7), (2, 3), padding=1, stride=2), drawn(2, 12, 16))


IMAGE, LINE, VOLUME = (2, 3, 9, 8), (2, 3, 9), (1, 2, 5, 6, 7)
SIZES: dict[str, dict[str, Any]] = {
    "larger": {"scale_factor": 1.7},
    "smaller": {"scale_factor": 0.6},
    "to a size": {"size": (7, 11)},
    "doubled": {"scale_factor": 2},
    "one side about as long": {"scale_factor": (2.3, 1.1)},
}


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
@pytest.mark.parametrize("size", SIZES)
def test_images_of_another_resolution(size: str, mode: str) -> None:
    def resized(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = functional.interpolate(x, mode=mode, **SIZES[size])
        if mode.startswith("nearest"):
            return (made,)
        return made, functional.interpolate(x, mode=mode, align_corners=True, **SIZES[size])

    compare(resized, drawn(*IMAGE))


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_smaller_images_with_antialiasing(mode: str) -> None:
    compare(lambda x: functional.interpolate(x, (4, 5), mode=mode, antialias=True), drawn(*IMAGE))


def test_lines_and_volumes_of_another_resolution() -> None:
    def resized(line: torch.Tensor, volume: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            functional.interpolate(line, scale_factor=1.6, mode="linear"),
            functional.interpolate(line, size=4),
            functional.interpolate(volume, size=(4, 9, 3), mode="trilinear"),
            functional.interpolate(volume, scale_factor=(2, 1.5, math.pi)),
        )

    compare(resized, drawn(*LINE), drawn(*VOLUME))


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_images_and_volumes_at_the_places_of_a_grid(mode: str) -> None:
    def sampled(x: torch.Tensor, grid: torch.Tensor) -> tuple[torch.Tensor, ...]:
        options = [(padding, corners) for padding in ("zeros", "border") for corners in (True, False)]
        return tuple(functional.grid_sample(x, grid, mode, *one) for one in options)

    compare(sampled, drawn(*IMAGE), 0.9 * drawn(2, 4, 5, 2))
    compare(sampled, drawn(*VOLUME), 0.9 * drawn(1, 3, 2, 4, 3))
