"""Gensor as a proposer: walks, and the states they end in as candidates."""

from __future__ import annotations

import contextlib
import gc
import hashlib
from collections.abc import Iterator, Sequence

from host.gensor.walk import TREE, Recorder, WalkOptions, construct
from host.model import Candidate, DeviceProfile, Measurement
from host.schedules.design import DesignSpace


class Gensor:
    """Constructs candidates without measuring.

    Args:
        tree: walk without steps back, greedily: the constructive baseline.
        options: how to walk; None for the defaults of the mode.
    """

    def __init__(self, tree: bool = False, options: WalkOptions | None = None) -> None:
        self.name = "tree" if tree else "gensor"
        self._options = options or (TREE if tree else WalkOptions())

    def propose(
        self,
        space: DesignSpace,
        profile: DeviceProfile,
        history: Sequence[tuple[Candidate, Measurement]],
        k: int,
        seed: int,
    ) -> list[Candidate]:
        """Up to `k` candidates, best estimate first; `history` is not used: nothing is learned here."""
        found = self._walks(space, profile, k, seed, None)
        return [space.candidate(values, self.name, cost) for values, cost in found]

    def retrace(self, space: DesignSpace, profile: DeviceProfile, seed: int, recorder: Recorder) -> None:
        """Repeat the walks of `propose` with the same arguments; `recorder` receives every step."""
        self._walks(space, profile, 1, seed, recorder)

    def _walks(
        self, space: DesignSpace, profile: DeviceProfile, k: int, seed: int, recorder: Recorder | None
    ) -> list[tuple[dict[str, int], float]]:
        text = f"{space.task.workload_hash}/{profile.board.name}/{seed}"
        number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        with _without_collector():
            return construct(space, space.estimate_s, self._options, k, number, recorder)


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Leave the collector of cycles off, if it is on.

    A walk makes millions of tuples and no cycle: to look for cycles among them takes a tenth of its time.
    """
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()
