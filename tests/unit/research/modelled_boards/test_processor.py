"""The time of kernels on modelled boards: what caches, memory and prefetching do to known accesses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from research.modelled_boards.boards import modelled_board, modelled_board_names
from research.modelled_boards.processor import Caches
from tests.unit.research.modelled_boards.kernels import Kernels, reader

LINE, FLOATS = 64, 16
# Floats of small data, which fit into every first cache, and of data that fit into no cache.
SMALL, LARGE = 1024, 1 << 20


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kernels]:
    functions = {
        "small": reader(SMALL, 1),
        "twice": reader(2 * SMALL, 1),
        "sequence": reader(LARGE, 1),
        # A float of every 17th line: farther than the prefetcher follows, another page each fourth time.
        "scattered": reader(LARGE // FLOATS // 16, 17 * FLOATS),
    }
    folder = tmp_path_factory.mktemp("kernels")
    return {name: Kernels(modelled_board(name), functions, folder) for name in modelled_board_names()}


@pytest.mark.parametrize("name", modelled_board_names())
def test_more_work_is_not_faster_and_warm_is_not_slower(kernels: dict[str, Kernels], name: str) -> None:
    board = modelled_board(name)
    cold, warm = (kernels[name].time(board, "small", caches) for caches in (Caches.COLD, Caches.WARM))
    assert warm.seconds < cold.seconds
    assert warm.elapsed.misses[0] == warm.elapsed.lines_read == 0 and warm.elapsed.waited == 0.0
    assert cold.elapsed.lines_read >= SMALL * 4 // LINE
    for state in Caches:
        assert (
            kernels[name].time(board, "twice", state).seconds
            > kernels[name].time(board, "small", state).seconds
        )
    assert kernels[name].time(board, "small") == cold


@pytest.mark.parametrize("name", modelled_board_names())
def test_a_sequence_costs_bandwidth(kernels: dict[str, Kernels], name: str) -> None:
    """A loop that adds a float a cycle or more slowly is no bound where memory is far slower."""
    board = replace(modelled_board(name), memory_bytes_per_s=2e8)
    found = kernels[name].time(board, "sequence")
    assert found.elapsed.lines_read == pytest.approx(4 * LARGE / LINE, rel=0.01)
    assert found.seconds == pytest.approx(4 * LARGE / 2e8, rel=0.1)
    twice = kernels[name].time(replace(board, memory_bytes_per_s=4e8), "sequence")
    assert found.seconds / twice.seconds == pytest.approx(2.0, rel=0.1)


@pytest.mark.parametrize("name", modelled_board_names())
def test_scattered_lines_cost_latency(kernels: dict[str, Kernels], name: str) -> None:
    """With one line outstanding, every line costs the whole latency; more of them overlap."""
    board = replace(modelled_board(name), misses=1, translation_cycles=1e-9, walk_cycles=1e-9)
    lines = LARGE // FLOATS // 16
    found = kernels[name].time(board, "scattered")
    assert found.seconds == pytest.approx(lines * board.memory_latency_s, rel=0.1)
    assert found.seconds > 3.0 * lines * LINE / board.memory_bytes_per_s
    more = kernels[name].time(replace(board, misses=4), "scattered")
    assert lines * LINE / board.memory_bytes_per_s < more.seconds < 0.6 * found.seconds
    pages = replace(board, translation_cycles=1000.0, walk_cycles=1000.0)
    assert kernels[name].time(pages, "scattered").seconds > 1.2 * found.seconds


def test_the_prefetcher_hides_latency_of_sequences_alone(kernels: dict[str, Kernels]) -> None:
    board = modelled_board("rk3588_a55")
    without = replace(board, streams=0)
    sequence, scattered = (
        [kernels[board.name].time(one, kernel) for one in (board, without)]
        for kernel in ("sequence", "scattered")
    )
    assert sequence[0].seconds < 0.8 * sequence[1].seconds
    assert sequence[0].elapsed.prefetches > 0.9 * 4 * LARGE / LINE and not sequence[1].elapsed.prefetches
    assert scattered[0] == scattered[1]


def test_what_dispatch_goes_on_with_hides_latency(kernels: dict[str, Kernels]) -> None:
    """Without the prefetcher, a longer window has more lines outstanding."""
    board = replace(modelled_board("raspberry_pi_5"), streams=0)
    times = [
        kernels[board.name].time(replace(board, window=window), "scattered").seconds
        for window in (4, 32, 128)
    ]
    assert times[0] > 1.5 * times[1] > 1.5 * times[2]


def test_larger_caches_miss_less(kernels: dict[str, Kernels]) -> None:
    """As many sets with more ways: least recently used lines nest (Mattson and others, 1970)."""
    board = replace(modelled_board("raspberry_pi_4"), streams=0)
    first, second = board.levels
    grown = [
        replace(board, levels=(replace(first, size_bytes=4096 * k, ways=2 * k), second)) for k in (1, 2, 4)
    ]
    misses = [kernels[board.name].time(one, "twice", Caches.WARM).elapsed.misses[0] for one in grown]
    assert misses == sorted(misses, reverse=True)
    # A cyclic sequence of 8 KiB misses always in 4 KiB, and never in 16 KiB.
    assert misses[0] >= 2 * SMALL * 4 // LINE and misses[2] == 0


def test_the_first_argument_is_there_as_far_as_it_fits(kernels: dict[str, Kernels]) -> None:
    board = modelled_board("raspberry_pi_4")
    small = kernels[board.name].time(board, "small", Caches.PRODUCED).elapsed
    # The sums are what is not there.
    assert small.lines_read == 1
    large = kernels[board.name].time(board, "sequence", Caches.PRODUCED).elapsed
    assert large.lines_read == pytest.approx(4 * LARGE / LINE, rel=0.01)
    # What was written before is written back before it is read again.
    assert large.lines_written > 0 and small.lines_written == 0
