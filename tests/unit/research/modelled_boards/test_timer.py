"""Programs timed on modelled boards for a collection: a cut run continues with the same times."""

from __future__ import annotations

from pathlib import Path

from host.schedules import space_for
from research.collection.collect import CollectedTask, Collector
from research.collection.dataset import read_programs
from research.modelled_boards.boards import modelled_board
from research.modelled_boards.timer import ModelledTimer, profile_of_modelled
from tests.unit.schedules import functions as fn


def test_a_collection_has_times_and_estimates_and_continues(tmp_path: Path) -> None:
    board = modelled_board("raspberry_pi_4")
    profile = profile_of_modelled(board)
    space = space_for(fn.task(fn.dense(8, 64, 32, lanes=4)), profile.hardware)
    tasks = {space.task.workload_hash: CollectedTask("network", space, 3)}
    notes: list[str] = []

    def collect(path: Path) -> int:
        collector = Collector(ModelledTimer(board, tmp_path), profile, tasks, path, notes.append)
        collector.run(1, float("inf"))
        return collector.measured

    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    count = collect(first)
    assert count >= 20 and not notes
    assert collect(first) == 0
    assert collect(second) == count and second.read_bytes() == first.read_bytes()
    programs = list(read_programs(first))
    assert [one.first for one in programs].count(True) == 1 and programs[0].origin == "gensor"
    assert all(one.weight == 3 and one.estimated_s["total"] > 0.0 for one in programs)
    # Nothing is faster than the multiply-adds that the core can start, and programs differ.
    least = 8 * 64 * 32 / 4 / board.frequency_hz
    assert min(one.seconds for one in programs) > least
    assert max(one.seconds for one in programs) > 1.2 * min(one.seconds for one in programs)
