"""Rewriting programs by functions that may refuse."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from tvm import tirx

from host.tensor_ir.structural import mapped
from tests.scheduling.repetitions import seeds

EXTENT = tirx.Var("n", "int32")


def nest(depth: int = 4) -> tuple[Any, list[tirx.Var]]:
    """Loops in each other, and their variables from outside to inside."""
    loops = [tirx.Var(f"i{level}", "int32") for level in range(depth)]
    body: Any = tirx.Evaluate(loops[0] + loops[1])
    for loop in reversed(loops):
        body = tirx.For(loop, tirx.IntImm("int32", 0), EXTENT, tirx.ForKind.SERIAL, body)
    return body, loops


def longer(loop: tirx.For) -> tirx.For:
    return tirx.For(loop.loop_var, loop.min, loop.extent + 1, loop.kind, loop.body)


def test_every_node_of_a_type_is_replaced() -> None:
    body, loops = nest()
    made = mapped(body, (tirx.For, longer))
    for _ in loops:
        assert str(made.extent) == "n + 1"
        made = made.body


def test_the_first_refusal_is_raised_and_nothing_is_replaced_after_it() -> None:
    body, loops = nest()
    seen: list[str] = []

    def refuse(loop: tirx.For) -> tirx.For:
        seen.append(loop.loop_var.name)
        if loop.loop_var.same_as(loops[2]):
            raise ValueError("no loop over tiles")
        return longer(loop)

    with pytest.raises(ValueError, match="no loop over tiles"):
        mapped(body, (tirx.For, refuse))
    assert seen == ["i3", "i2"]


def test_an_interruption_is_raised_too() -> None:
    def interrupt(loop: tirx.For) -> tirx.For:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mapped(nest()[0], (tirx.For, interrupt))


REFUSALS = """
import host.execution.without_torch
from host.tensor_ir.structural import mapped
from tests.scheduling.repetitions import seeds
from tests.unit.tensor_ir.test_structural import longer, nest
from tvm import tirx

body, loops = nest()

def refuse(loop):
    if loop.loop_var.same_as(loops[2]):
        raise ValueError
    return longer(loop)

for _ in range(20000):
    try:
        mapped(body, (tirx.For, refuse))
    except ValueError:
        pass
"""


@seeds(4)
def test_refusals_leave_memory_as_it_was(seed: int) -> None:
    # With these, glibc ends the process at the first damage that it sees.
    environment = {**os.environ, "MALLOC_CHECK_": "3", "MALLOC_PERTURB_": str(165 + seed)}
    done = subprocess.run(
        [sys.executable, "-c", REFUSALS], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
