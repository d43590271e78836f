"""The construction graph and the walks over it."""

from __future__ import annotations

import gc
import math
import pickle
import random
from dataclasses import replace

import pytest
from tvm import tirx

from host.gensor import Gensor
from host.gensor.actions import actions
from host.gensor.etir import State, initial_state
from host.gensor.walk import TREE, Pool, WalkOptions, construct
from host.model import DeviceProfile
from host.schedules import DesignSpace, scheduled_function, space_for
from targets import board_for, declared
from tests.unit.schedules import functions as fn

BOARD = fn.board()
PROFILE = DeviceProfile("test", BOARD, BOARD.hardware, 1)
FUNCTIONS = {
    "dense": fn.dense(128, 768, 768),
    "convolution": fn.convolution(28, 64, 64, 3, 1),
    "depthwise": fn.depthwise(28, 96, 1),
    "softmax": fn.softmax(12, 128, 128),
    "transpose": fn.transpose((1, 128, 12, 64), (0, 2, 3, 1)),
}


def _space(name: str) -> DesignSpace:
    return space_for(fn.task(FUNCTIONS[name], name), BOARD.hardware, 1)


@pytest.mark.parametrize(("rows", "fetched"), [(1, 0), (4, 0), (8, 1), (128, 1)])
def test_weights_are_fetched_ahead_where_enough_rows_use_them(rows: int, fetched: int) -> None:
    space = space_for(fn.task(fn.dense(rows, 3072, 768), "dense"), BOARD.hardware, 1)
    assert Gensor().propose(space, PROFILE, [], 1, seed=0)[0].value("fetch") == fetched


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_seed_gives_the_same_programs(name: str) -> None:
    space = _space(name)
    first = Gensor().propose(space, PROFILE, [], 5, seed=3)
    assert first == Gensor().propose(space, PROFILE, [], 5, seed=3)
    estimates = [candidate.estimate_s for candidate in first]
    assert estimates == sorted(estimates)
    assert len({candidate.decisions for candidate in first}) == len(first)
    for candidate in first:
        assert space.legal(dict(candidate.decisions))
        assert candidate.proposer == "gensor"


def test_register_tiles_are_found_that_need_a_wide_panel() -> None:
    """Vectors of 16 bytes: only side by side do they read whole cache lines, however they are tiled."""
    board = board_for(declared()["raspberry_pi_4"])
    assert board is not None
    space = space_for(fn.task(fn.depthwise(112, 32, 1), "depthwise"), board.hardware, 1)
    profile = DeviceProfile("raspberry_pi_4", board, board.hardware, 1)
    (found,) = Gensor().propose(space, profile, [], 1, seed=0)
    unit = {decision.name: decision.choices[0] for decision in space.decisions}
    wide = {**unit, "rows": 2, "rows2": 4, "panel": 8, "window": 1, "pad": 1}
    assert found.estimate_s <= 1.01 * space.estimate_s(wide)


def _best_of_random(space: DesignSpace, count: int) -> float:
    generator = random.Random(5)
    return min(space.estimate_s(space.sample(generator)) for _ in range(count))


@pytest.mark.parametrize(
    "function",
    [
        # 33 tiles of six rows: blocks of several of them are far from a block of one.
        fn.dense(198, 384, 1536),
        fn.dense(49, 512, 2048),
        fn.convolution(14, 512, 512, 3, 2),
        fn.depthwise(14, 240, 1),
        fn.convolution(28, 104, 104, 3, 1),
        fn.batched(6, 49, 49, 64),
    ],
)
@pytest.mark.parametrize("restrict", ["", "avx2"])
def test_construction_finds_what_many_random_programs_find(function: tirx.PrimFunc, restrict: str) -> None:
    board = fn.board(restrict=restrict)
    space = space_for(fn.task(function), board.hardware, 1)
    [candidate] = Gensor().propose(space, DeviceProfile("test", board, board.hardware, 1), [], 1, seed=0)
    assert candidate.estimate_s <= _best_of_random(space, 800) / 0.98


def test_a_step_leads_to_the_nearest_legal_value_and_back() -> None:
    """Choices of a block are those of every tile; most of them do not divide the tiles at hand."""
    space = space_for(fn.task(fn.dense(198, 384, 1536)), BOARD.hardware, 1)
    [block] = [decision for decision in space.decisions if decision.name == "block"]
    values = {decision.name: decision.choices[0] for decision in space.decisions} | {"rows": 6}
    assert space.legal(values)
    [first] = space.steps(values, block)
    between = block.choices[1 : block.choices.index(first)]
    assert between
    assert not any(space.legal({**values, "block": value}) for value in between)
    assert values["block"] in space.steps({**values, "block": first}, block)


def test_whatever_grows_shrinks_back() -> None:
    space = _space("convolution")
    state = initial_state(space)
    for action in actions(space, state):
        if action.kind == "advance":
            assert action.target.level == 1
            continue
        assert action.kind == "grow", "the unit program has nothing to shrink"
        back = [a.target for a in actions(space, action.target) if a.kind == "shrink"]
        assert state in back


def test_two_orders_of_the_same_moves_meet() -> None:
    space = _space("dense")
    start = initial_state(space)

    def grow(state, decision):
        return next(a.target for a in actions(space, state) if (a.kind, a.decision) == ("grow", decision))

    one = grow(grow(start, "rows"), "vectors")
    other = grow(grow(start, "vectors"), "rows")
    assert one == other
    assert hash(one) == hash(other)


def test_the_tree_only_grows() -> None:
    space = _space("convolution")
    state = initial_state(space)
    grown = next(a.target for a in actions(space, state) if a.kind == "grow")
    assert {a.kind for a in actions(space, grown, inverse=False)} == {"grow", "advance"}
    assert "shrink" in {a.kind for a in actions(space, grown, inverse=True)}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_tree_interleaves_nothing(name: str) -> None:
    space = _space(name)
    [candidate] = Gensor(tree=True).propose(space, PROFILE, [], 1, seed=0)
    assert all(candidate.value(decision) <= 1 for decision in _interleaving(space))


def test_the_graph_interleaves_what_waits() -> None:
    """Sums along short tiles wait for the one before unless there are several of them."""
    space = _space("depthwise")
    [candidate] = Gensor().propose(space, PROFILE, [], 1, seed=0)
    assert any(candidate.value(decision) > 1 for decision in _interleaving(space))


def _interleaving(space: DesignSpace) -> list[str]:
    return [decision.name for decision in space.decisions if decision.kind.interleaves]


def test_more_walks_never_find_worse() -> None:
    space = _space("dense")

    def best(options: WalkOptions) -> float:
        return construct(space, space.estimate_s, options, 1, seed=1)[0][1]

    few, many = best(WalkOptions(walks=1)), best(WalkOptions(walks=24, stall=24))
    assert many <= few
    assert many <= best(TREE) * 1.0001


def test_a_walk_ends_even_if_nothing_ever_gains() -> None:
    space = _space("depthwise")
    seen = construct(space, lambda values: 1.0, WalkOptions(walks=2), 3, seed=0)
    assert 1 <= len(seen) <= 3


def test_the_pool_keeps_the_best_once() -> None:
    space = _space("dense")
    pool = Pool(2)
    start = initial_state(space)
    grown = [a.target for a in actions(space, start) if a.kind == "grow"][:2]
    assert pool.offer(start, 3.0)
    assert not pool.offer(start, 3.0)
    assert pool.offer(grown[0], 1.0)
    assert not pool.offer(grown[1], 2.0)
    assert [cost for _, cost in pool.ranked()] == [1.0, 2.0]


def test_the_pool_is_that_of_all_programs_in_any_order() -> None:
    """Also of those with equal estimates, of which the decisions choose."""
    space, generator = _space("dense"), random.Random(3)
    states = [State(tuple(space.sample(generator).items()), 0) for _ in range(60)]
    costs = [float(generator.randrange(9)) for _ in states]
    known = dict(reversed([(state.key(), cost) for state, cost in zip(states, costs, strict=True)]))
    offered = [(state, known[state.key()]) for state in states * 2]
    wanted = sorted(known.items(), key=lambda item: (item[1], item[0]))[:5]
    for _ in range(4):
        generator.shuffle(offered)
        pool, best = Pool(5), math.inf
        for state, cost in offered:
            assert pool.offer(state, cost) == (cost < best)
            best = min(best, cost)
        assert pool.ranked() == [(dict(key), cost) for key, cost in wanted]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_programs_share_is_what_each_has_by_itself(name: str) -> None:
    """Parts of the estimates are kept: in any order, and with another processor in between, none changes."""
    slow = replace(BOARD.hardware, fma_per_cycle=BOARD.hardware.fma_per_cycle / 2)
    space = space_for(fn.task(FUNCTIONS[name], name), BOARD.hardware, 2)
    generator = random.Random(11)
    programs = [space.sample(generator) for _ in range(40)]
    programs += [{**values, "parallel": 3 - values["parallel"]} for values in programs]
    wanted = {
        (number, hardware): space_for(fn.task(FUNCTIONS[name], name), hardware, 2).estimated(values)
        for number, values in enumerate(programs)
        for hardware in (BOARD.hardware, slow)
    }
    numbers = range(len(programs))
    # Whoever asks for another processor begins anew: only those of one and the same share anything.
    by_processor = [(n, one) for one in (BOARD.hardware, slow) for n in (*numbers[::-1], *numbers)]
    in_turn = [(n, one) for n in numbers for one in (BOARD.hardware, slow)]
    for number, hardware in (*by_processor, *in_turn):
        found = replace(space, hardware=hardware).estimated(programs[number])
        assert found == wanted[number, hardware]


def test_what_programs_share_is_not_sent_to_other_processes() -> None:
    space = _space("dense")
    text = pickle.dumps(space.workload.anchor_stage)
    Gensor().propose(space, PROFILE, [], 1, seed=0)
    sent = pickle.loads(pickle.dumps(space.workload.anchor_stage))
    assert sent == pickle.loads(text) and not sent._known
    assert space.workload.anchor_stage._known


def test_random_programs_are_drawn_as_choice_draws() -> None:
    space = _space("convolution")
    drawn, other = random.Random(9), random.Random(9)
    for _ in range(30):
        found = space.sample(drawn)
        while not space.legal(
            values := {decision.name: other.choice(decision.choices) for decision in space.decisions}
        ):
            pass
        assert found == values


@pytest.mark.parametrize(("function", "shared"), [(fn.dense(128, 768, 768), True), (fn.addition(64), False)])
def test_threads_are_woken_only_for_what_is_worth_it(function: tirx.PrimFunc, shared: bool) -> None:
    space = space_for(fn.task(function), BOARD.hardware, 2)
    profile = DeviceProfile("test", BOARD, BOARD.hardware, 2)
    [candidate] = Gensor().propose(space, profile, [], 1, seed=0)
    assert dict(candidate.decisions)["parallel"] == (2 if shared else 1)
    assert ("T.parallel" in scheduled_function(space.apply(candidate)).script()) == shared


def test_walks_make_no_cycles_and_are_not_searched_for_them() -> None:
    space, searched = _space("convolution"), list[bool]()
    Gensor().retrace(space, PROFILE, 0, lambda step: searched.append(gc.isenabled()))
    assert searched and not any(searched)
    assert gc.isenabled()
    gc.collect()
    Gensor().retrace(space, PROFILE, 0, lambda step: None)
    assert gc.collect() == 0


@pytest.mark.parametrize(("weights_bytes", "shared"), [(0, True), (64 << 20, True), (8 << 20, False)])
def test_products_of_one_row_are_shared_where_their_weights_come_from_memory(
    weights_bytes: int, shared: bool
) -> None:
    """64 KB of them: they come from the third level in about the time in which threads are woken."""
    task = replace(fn.task(fn.dense(1, 64, 256)), model_weights_bytes=weights_bytes)
    space = space_for(task, BOARD.hardware, 2)
    profile = DeviceProfile("test", BOARD, BOARD.hardware, 2)
    [candidate] = Gensor().propose(space, profile, [], 1, seed=0)
    assert candidate.value("parallel") == (2 if shared else 1)
