from __future__ import annotations

from collections import Counter

from benchmarks.onnx_nodes.workers import sampled

FAMILIES = {f"{family}_{number}": family for family in "abcdefghij" for number in range(10)} | {"k": "k"}


def test_a_share_takes_all_families_in_turn() -> None:
    taken = sampled(FAMILIES, 25 / 101, seed=0)
    counts = Counter(FAMILIES[name] for name in taken)
    assert len(taken) == 25 and len(counts) == 11
    assert counts["k"] == 1 and max(counts.values()) == 3


def test_a_seed_decides_which_are_taken() -> None:
    assert sampled(FAMILIES, 0.2, seed=3) == sampled(FAMILIES, 0.2, seed=3)
    assert len({tuple(sampled(FAMILIES, 0.2, seed)) for seed in range(5)}) == 5


def test_the_whole_is_everything_in_order() -> None:
    assert sampled(FAMILIES, 1.0, seed=7) == list(FAMILIES)
