"""The order in which files of tests are handed to the processes that run them: the longest first.

`scripts/test` gives each process whole files, in the order of collection. A file of several minutes that
comes last is run by one process while the others have nothing left to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

# The files that take half a minute or more on two cores from a clean checkout, about the longest first: see
# `pytest --durations=60`. Those that use native executors are not the first: `scripts/test` begins to compile
# these executors before the tests begin.
LONGEST = (
    "tests/integration/importers/test_transformers_folders.py",
    "tests/cluster/test_faults.py",
    "tests/replay/test_replay.py",
    "tests/cluster/test_commands.py",
    "tests/integration/importers/test_importers.py",
    "tests/fuzz/test_fuzz.py",
    "tests/integration/boards/test_language_models.py",
    "tests/unit/schedules/cuda/test_mma.py",
    "tests/integration/boards/test_machine.py",
    "tests/integration/native/test_native.py",
    "tests/integration/deploy/test_deploy.py",
    "tests/integration/deploy/test_types.py",
    "tests/integration/deploy/test_quantise.py",
    "tests/integration/examples/test_notebooks.py",
    "tests/integration/test_packaging.py",
    "tests/integration/test_tuning.py",
    "tests/integration/extensions/test_installed.py",
    "tests/integration/fleet/test_leases.py",
    "tests/integration/examples/test_cpp.py",
    "tests/integration/test_faults.py",
    "tests/emulation/test_kernels.py",
    "tests/emulation/cuda/test_deploy.py",
    "tests/emulation/cuda/test_bundles.py",
    "tests/integration/deploy/test_dynamic.py",
    "tests/integration/benchmarks/test_operator_benchmark.py",
    "tests/integration/benchmarks/test_onnx_nodes.py",
)


class Item(Protocol):
    """A test, as far as its order depends on it."""

    nodeid: str


_Item = TypeVar("_Item", bound=Item)


def longest_first(items: Sequence[_Item]) -> list[_Item]:
    """The tests of the longest files before all others; otherwise the order stays."""
    rank = {file: number for number, file in enumerate(LONGEST)}
    return sorted(items, key=lambda item: rank.get(item.nodeid.split("::", 1)[0], len(LONGEST)))
