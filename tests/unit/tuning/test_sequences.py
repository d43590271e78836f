"""The same seed proposes and records the same in the same order, on one board and on three.

A change that means to keep behaviour leaves the recording as it is. One that means to change it writes it
anew (`python -m tests.unit.tuning.sequences`), so that the difference is in the commit.
"""

from __future__ import annotations

import json

import pytest

from tests.unit.tuning.sequences import RECORDING, SEEDS, sequence


@pytest.mark.parametrize("boards", [1, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_proposals_and_records_are_those_of_the_recording(seed: int, boards: int) -> None:
    recorded = json.loads(RECORDING.read_text())
    assert sequence(seed, boards) == recorded[f"seed {seed}"]


def test_another_seed_proposes_something_else() -> None:
    recorded = json.loads(RECORDING.read_text())
    assert len({json.dumps(rows) for rows in recorded.values()}) == len(SEEDS)
