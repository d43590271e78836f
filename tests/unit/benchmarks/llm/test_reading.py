"""The loops that only read: what they read, what they fetch, and what they are called."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.llm.reading import LOOPS, Loop, Reader, Reading, reading
from host.compile.device_profile import profile_of
from host.transport import connect


@pytest.mark.parametrize("threads", [1, 2])
def test_every_loop_reads_the_whole_buffer(threads: int) -> None:
    with connect("local") as device:
        board = profile_of(device, 1).board
    loops = (LOOPS[0], Loop(2, 4096), Loop(4, 512, level=1), Loop(1, 512, level=0))
    # Raises where the sum of a loop is not that of the buffer.
    made = Reading(board, 300_001, threads, loops)
    assert 250_000 < made.size <= 300_001
    rates = made.rates(0.0)
    assert list(rates) == [loop.name for loop in loops] and min(rates.values()) > 0


def test_lines_are_fetched_once_for_each_step() -> None:
    """A step of 8 vectors of 64 bytes has 8 lines, one of 8 vectors of 16 bytes two, in every place."""
    for lanes, lines in ((16, 8), (4, 2)):
        for loop in (Loop(1, 4096), Loop(4, 4096, level=1)):
            text = reading(1 << 16, lanes, 1, loop).script()
            kinds = [line for line in text.splitlines() if "prefetch" in line or "+ source[" in line]
            order = "".join("f" if "prefetch" in line else "r" for line in kinds)
            # They take turns with what is read.
            assert order == ("f" + "r" * (8 // lines)) * lines and f"T.unroll({loop.places})" in text
    assert "prefetch" not in reading(1 << 16, 16, 1, Loop(4)).script()


def test_loops_have_names_of_their_own() -> None:
    assert len({loop.name for loop in LOOPS}) == len(LOOPS)
    assert replace(LOOPS[0], places=4, ahead=2048, level=1).name == (
        "4 places in turn, 2048 bytes ahead to level 1"
    )


def test_nothing_is_read_before_the_loops_are_made() -> None:
    with pytest.raises(ValueError, match="nothing is loaded"):
        Reader().read(0.1)
