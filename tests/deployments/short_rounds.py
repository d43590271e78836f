"""Whole models are measured in rounds of milliseconds, where a test deploys to this machine.

No test asserts a time, and most of what a small model takes to deploy is rounds of a third of a second for
each engine. The number of rounds, their order and the bounds of their ratios stay.
`python -m tests.deployments.short_rounds ARGUMENTS` is `sdk ARGUMENTS` measured so, which reads model files
as `tests.deployments.own_files` does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

import host.execution.without_torch  # noqa: F401 - as the command does
from tests.deployments.own_files import read_here

_ROUND_S = 0.02


def shorten(patch: pytest.MonkeyPatch) -> None:
    """Have every comparison of sessions measure in short rounds, until the patch is undone.

    Rounds of a simulated board keep their length: they take no time, and what it shows depends on them.
    """
    from host.compare.runner import InterleavedRun
    from host.model import SIMULATION

    begin = InterleavedRun.__init__

    def short(
        run: InterleavedRun, sessions: Any, conditions: Any, effort: Any, *more: Any, **named: Any
    ) -> None:
        if not any(session._device.timing == SIMULATION for session in sessions.values()):
            effort = replace(effort, round_s=_ROUND_S, warmup_s=_ROUND_S)
        begin(run, sessions, conditions, effort, *more, **named)

    patch.setattr(InterleavedRun, "__init__", short)


def main(arguments: Sequence[str]) -> int:
    """The command line, with short rounds; returns its exit code."""
    from sdk.cli.main import main as command

    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        return command(list(arguments))


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as reading:
        read_here(reading)
        sys.exit(main(sys.argv[1:]))
