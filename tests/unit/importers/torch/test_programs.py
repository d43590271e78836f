"""What happens to torch programs before they are converted: loops written out, operators refused."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import fx, nn
from torch._higher_order_ops import map as mapped
from torch._higher_order_ops import scan
from torch.nn import functional

from device_agent.contract.limits import LIMITS
from host.errors import ImportFailed
from host.importers.random_inputs import STYLES, draw
from host.importers.torch.program import control_flow
from host.importers.torch.program.control_flow import MAX_STEPS, write_out
from host.importers.torch.ranges import input_ranges
from host.model import TensorSpec
from tests.unit.importers.torch.lowered_programs import compare_lowered
from tests.unit.importers.torch.test_operators import Calls, drawn, imported, whole


@pytest.mark.parametrize("sign", [1, -1])
def test_a_branch_that_an_input_decides(sign: int) -> None:
    def chosen(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        def one(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            inner = torch.cond(x.sum() > 100, lambda x: x * 2, lambda x: x / 2, (x,))
            return inner + 1, x.exp()

        found = torch.cond(y.sum() > 0, one, lambda x: (x.log(), x * (x > 1)), (x,))
        return *found, found[0] * 2

    compare_lowered(chosen, drawn(3, 4).abs(), sign * torch.ones(2))


def test_a_condition_of_one_element_gives_results_no_axis() -> None:
    def chosen(x: torch.Tensor) -> torch.Tensor:
        return torch.cond((x[:1] > 0), lambda x: x.sum(), lambda x: x.prod(), (x,))

    compare_lowered(chosen, drawn(3).abs())
    compare_lowered(chosen, -drawn(3).abs())


def test_constants_of_subgraphs_stay_apart() -> None:
    """Of graphs in which each branch has a tensor of its own, one after another."""

    def with_constant(number: float) -> fx.GraphModule:
        graph, root = fx.Graph(), nn.Module()
        root.register_buffer("constant", torch.full((2,), number))
        operands = (graph.placeholder("x"), graph.get_attr("constant"))
        graph.output((graph.call_function(torch.ops.aten.add.Tensor, operands),))
        return fx.GraphModule(root, graph)

    root, graph = nn.Module(), fx.Graph()
    x, condition = graph.placeholder("x"), graph.placeholder("condition")
    results = []
    for number in range(6):
        names = [f"first_{number}", f"second_{number}"]
        for name, value in zip(names, (number, 10 + number), strict=True):
            setattr(root, name, with_constant(value))
        branches = [graph.get_attr(name) for name in names]
        chosen = graph.call_function(torch.ops.higher_order.cond, (condition, *branches, (x,)))
        chosen.meta["val"] = (torch.zeros(2),)
        results.append(graph.call_function(operator.getitem, (chosen, 0)))
    graph.output(tuple(results))
    module = fx.GraphModule(root, graph)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a constant that torch did not lift
        write_out(module)
    module.recompile()
    for decided, first in ((True, 0), (False, 10)):
        made = module(torch.zeros(2), torch.tensor(decided))
        assert [int(one[0]) for one in made] == list(range(first, first + 6))


def test_loops_of_known_length() -> None:
    def looped(x: torch.Tensor, start: torch.Tensor) -> tuple[torch.Tensor, ...]:
        def step(held: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            new = torch.tanh(held * 0.5 + row)
            return new, new.cumsum(0)

        rows = mapped(lambda row, scale: row.softmax(0) * scale, x, start)
        return rows, *scan(step, start, x), scan(step, start, x, reverse=True)[1]

    compare_lowered(looped, drawn(5, 4), drawn(4))


def test_long_loops_are_refused() -> None:
    with pytest.raises(ImportFailed, match=f"a loop of {MAX_STEPS + 1} steps is not written out"):
        imported(lambda x: mapped(lambda row: row.sin(), x), drawn(MAX_STEPS + 1, 2))


def test_many_loops_together_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them is short enough by itself."""
    limits = LIMITS._replace(model=LIMITS.model._replace(nodes=200))
    monkeypatch.setattr(control_flow, "LIMITS", limits)

    def looped(x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = mapped(lambda row: row.sin() + 1, x)
        return x

    with pytest.raises(ImportFailed, match="map_impl: with what is written out, it has over 200 nodes"):
        imported(looped, drawn(20, 2))
    compare_lowered(lambda x: mapped(lambda row: row.sin() + 1, x), drawn(20, 2))


RANDOM: dict[str, Callable[[torch.Tensor], Any]] = {
    "rand_like": lambda x: x + torch.rand_like(x),
    "randn": lambda x: x * torch.randn(3),
    "rand.default": lambda x: torch.bernoulli(x.sigmoid()),
    "multinomial": lambda x: torch.multinomial(x.abs(), 2),
}


@pytest.mark.parametrize("name", RANDOM)
def test_operators_that_draw_random_numbers_are_refused(name: str) -> None:
    with pytest.raises(ImportFailed, match=rf"{name}\S* draws random numbers.*as an input"):
        imported(RANDOM[name], drawn(3))


def test_a_model_in_training_is_refused() -> None:
    with pytest.raises(ImportFailed, match=r"dropout\S*: the model is in training: export it after eval"):
        imported(nn.Dropout(0.5).train(), drawn(3))
    compare_lowered(nn.Dropout(0.5).eval(), drawn(3))
    compare_lowered(nn.Dropout(0.0).train(), drawn(3))


SHAPES: dict[str, Callable[[torch.Tensor], Any]] = {
    "nonzero": lambda x: x.nonzero(),
    "masked_select": lambda x: x[x > 1],
    "unique": torch.unique,
    "bincount": lambda x: torch.bincount(x, minlength=9),
    "repeat_interleave": lambda x: torch.arange(8).repeat_interleave(x),
}


@pytest.mark.parametrize("name", SHAPES)
def test_results_whose_shape_depends_on_values_are_refused(name: str) -> None:
    with pytest.raises(ImportFailed, match="the shape of its result depends on the values of an input"):
        imported(SHAPES[name], whole(4, 8))


def test_rows_repeated_as_often_as_an_input_says() -> None:
    """As the length regulator of a speech synthesiser."""

    def repeated(rows: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        return rows.repeat_interleave(counts, 0, output_size=7)

    compare_lowered(repeated, drawn(4, 3), torch.tensor([2, 0, 4, 1]))


@pytest.mark.parametrize("size", [5, 40])
def test_a_fixed_number_of_places_that_are_not_zero(size: int) -> None:
    def found(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        places = torch.nonzero_static(x, size=size), torch.nonzero_static(x > 1, size=size, fill_value=0)
        return *places, torch.nonzero_static(x[0, 0], size=2)

    compare_lowered(found, whole(3, 2, 3, 4))


def test_histograms() -> None:
    def counted(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.histc(x, 6, -1.5, 1.5), torch.histc(x[:20], 5), torch.histc(y, 4)

    values = drawn(60)
    values[[0, 1, 2, 30, 40]] = torch.tensor([-1.5, 1.5, 0.0, math.nan, math.inf])
    compare_lowered(counted, values, torch.full((7,), 2.0))


def test_functions_of_two_numbers() -> None:
    def computed(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        signs = torch.copysign(x, y), torch.copysign(x, -2.0), torch.signbit(y)
        return *signs, torch.hypot(x, y), torch.fmax(x, y), torch.fmin(x, y)

    numbers = torch.tensor([0.0, -0.0, 1e-30, 3e30, -2.5, math.inf, -math.inf, 4.0])
    compare_lowered(computed, *(one.flatten() for one in torch.meshgrid(numbers, numbers, indexing="ij")))
    extremes = lambda x, y: (torch.fmax(x, y), torch.fmin(x, y), torch.hypot(x, y))  # noqa: E731
    missing = torch.tensor([math.nan, 1.0, math.nan, math.inf])
    compare_lowered(extremes, missing, torch.tensor([2.0, math.nan, math.nan, math.nan]))
    compare_lowered(lambda x, y: (torch.fmax(x, y), torch.copysign(x, y)), whole(9, 6), whole(7, 6) - 3)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_different_sizes(mode: str) -> None:
    table, numbers = drawn(20, 5), whole(20, 12)
    offsets = torch.tensor([0, 3, 3, 10])

    def bags(table: torch.Tensor, numbers: torch.Tensor, offsets: torch.Tensor) -> tuple[torch.Tensor, ...]:
        known = functional.embedding_bag(numbers, table, torch.tensor([0, 3, 3, 10]), mode=mode)
        padded = functional.embedding_bag(numbers.view(3, 4), table, mode=mode, padding_idx=7)
        closed = functional.embedding_bag(numbers, table, offsets, mode=mode, include_last_offset=True)
        return known, padded, closed, functional.embedding_bag(numbers, table, offsets, mode=mode)

    numbers[[4, 8, 9, 10, 11]] = 7
    compare_lowered(bags, table, numbers, offsets)


@pytest.mark.parametrize("padding", [None, 3])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_rows_behind_the_last_bag(mode: str, padding: int | None) -> None:
    def bags(table: torch.Tensor, numbers: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        options: dict[str, Any] = {"mode": mode, "padding_idx": padding, "include_last_offset": True}
        return functional.embedding_bag(numbers, table, offsets, **options)

    table = torch.arange(20.0).reshape(10, 2)
    compare_lowered(bags, table, torch.tensor([1, 3, 2, 3, 4, 9]), torch.tensor([0, 0, 1, 4]))


def test_drawn_offsets_of_bags_ascend_within_the_rows() -> None:
    def bags(table: torch.Tensor, numbers: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return functional.embedding_bag(numbers, table, offsets)

    arguments = drawn(20, 5), whole(20, 12), torch.tensor([0, 3, 3, 10])
    program = torch.export.export(Calls(bags), arguments)
    names = program.graph_signature.user_inputs
    (found,) = input_ranges(program, (TensorSpec(names[2], (4,), "int64"),))
    (values,) = draw([found], STYLES[0], np.random.default_rng(3))
    assert values[0] == 0 and (np.diff(values) >= 0).all() and 0 < values[-1] <= 12


@pytest.mark.filterwarnings("ignore:The reduce argument", "ignore:index_reduce")
def test_slices_and_numbers_are_combined_at_their_places() -> None:
    def combined(x: torch.Tensor, places: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        kinds = [(kind, own) for kind in ("prod", "mean", "amax", "amin") for own in (True, False)]
        slices = (x.index_reduce(1, places[0, :, 0], values, kind, include_self=own) for kind, own in kinds)
        return *slices, *(x.scatter(1, places, 2.0, reduce=kind) for kind in ("add", "multiply"))

    compare_lowered(combined, drawn(2, 5, 4), whole(4, 2, 7, 4), drawn(2, 7, 4))


class _OfWeights(nn.Module):
    """Functions of weights that have no conversion."""

    def __init__(self) -> None:
        super().__init__()
        self.orthogonal = nn.utils.parametrizations.orthogonal(nn.Linear(4, 4))
        self.weight = nn.Parameter(drawn(6, 4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        left, sizes, right = torch.linalg.svd(self.weight * 2 + torch.eye(6)[:, :4], full_matrices=False)
        return self.orthogonal(x), x @ right.T @ (left * sizes[:2].sum()).T


def test_functions_of_weights_without_a_conversion_are_computed() -> None:
    compare_lowered(_OfWeights().requires_grad_(False), drawn(3, 4))
    with pytest.raises(ImportFailed, match=r"_linalg_svd\S* has no conversion"):
        imported(torch.linalg.svdvals, drawn(3, 4))


def test_what_only_an_assertion_reads_is_left_out() -> None:
    """Deformable attention of transformers asserts that a tensor of sizes fits the features."""

    def checked(x: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
        torch._check((sizes.sum() == 6).item())
        return x.exp() + sizes.to(torch.float32)

    compare_lowered(checked, drawn(3, 2), torch.tensor([4, 2]))
