"""Programs of products of halves for a Cortex-A76: what is open, and the machine code of the hot loop."""

from __future__ import annotations

import re
import runpy

import pytest
import tvm
from tvm import relax

from host.build.kernel import lower_function
from host.gensor import Gensor
from host.lowering import lower
from host.model import DeviceProfile, Task
from host.schedules import scheduled_function, space_for
from host.schedules.api import Decisions
from host.schedules.cpu.half_sums import rule
from host.schedules.cpu.half_sums.rule import RULE
from host.schedules.cpu.tiled.rule import RULE as TILED
from targets import Board, board_for, declared
from tests.unit.lowering.harness import imported, normal, relax_module, weight


def board() -> Board:
    found = board_for(declared()["raspberry_pi_5"])
    assert found is not None
    return found


def tasks() -> dict[str, Task]:
    """A dense layer with a long sum, and a convolution of each channel, of what other layers make."""

    def dense(builder: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
        given = relax.op.nn.softmax(data)
        return relax.op.nn.relu(relax.op.add(relax.op.matmul(given, weight(96, 64)), weight(64)))

    def each(builder: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
        wide = relax.op.nn.relu(relax.op.nn.conv2d(data, weight(32, 16, 1, 1)))
        made = relax.op.nn.relu(relax.op.nn.conv2d(wide, weight(32, 1, 3, 3), padding=(1, 1), groups=32))
        return relax.op.nn.conv2d(made, weight(16, 32, 1, 1))

    found = {}
    for build, inputs in ((dense, [normal(196, 96)]), (each, [normal(1, 16, 14, 14)])):
        model = lower(imported(relax_module(build, inputs)), board(), half="float16")
        op = "half_dense" if build is dense else "half_depthwise"
        [found[build.__name__]] = [task for task in model.tasks if op in task.name]
    return found


def assembly(task: Task, values: Decisions | None = None) -> str:
    """What the compiler makes of the constructed program, or of that with given decisions."""
    profile = DeviceProfile("pi5", board(), board().hardware, 1)
    space = space_for(task, board().hardware)
    (candidate,) = Gensor().propose(space, profile, (), 1, seed=0)
    if values is not None:
        candidate = space.candidate(values, "test")
    target = tvm.target.Target(board().tvm_target)
    lowered = lower_function(scheduled_function(space.apply(candidate)), "kernel", target)
    return str(tvm.get_global_func("target.build.llvm")(lowered, target).inspect_source("s"))


def loops(text: str) -> list[str]:
    """The bodies of loops without another one inside, by their labels."""
    parts = re.split(r"^(\.LBB\S+):.*$", text, flags=re.MULTILINE)
    found = []
    for label, body in zip(parts[1::2], parts[2::2], strict=True):
        back = re.search(rf"\bb\.\w+\s+{re.escape(label)}$", body, re.MULTILINE)
        found += [body[: back.end()]] if back else []
    return found


def test_the_hot_loop_multiplies_eight_halves_at_once_and_spills_little() -> None:
    task = tasks()["dense"]
    space = space_for(task, board().hardware)
    assert space.rule is RULE
    hot = max(loops(assembly(task)), key=lambda body: body.count("fmla"))
    found = re.findall(r"^\s+([a-z][a-z0-9.]*)\b(.*)$", hot, re.MULTILINE)
    products = [rest for name, rest in found if name in ("fmla", "fmul")]
    # Each sum begins with its first product, and two vectors of weights come at once.
    assert [name for name, _ in found].count("fmul") * 12 == len(products)
    assert not any(name == "movi" for name, _ in found)
    assert sum(name == "ldp" for name, _ in found) >= 12
    assert len(products) >= 64
    assert all(".8h" in rest and ".h[" in rest for rest in products), "one element of a vector of activations"
    # Loads and what adds up blocks of 12, with tiles of 4 x 2 vectors.
    assert len(found) <= 1.7 * len(products)


def test_panels_are_a_loop() -> None:
    """One loop makes the sums of all four; written out, the sums of one spill into the next."""
    values = {"vectors": 2, "rows": 4, "rows2": 1, "panel": 4, "block": 1, "block2": 1, "pad": 0}
    assert len([body for body in loops(assembly(tasks()["dense"], values)) if body.count("fmla") >= 64]) == 1


def test_each_channel_by_itself_is_summed_in_halves() -> None:
    task = tasks()["each"]
    assert space_for(task, board().hardware).rule.name == "tiled"
    text = assembly(task)
    assert re.search(r"fmla\s+v\d+\.8h", text)
    assert not re.search(r"fmla\s+v\d+\.4s", text)
    assert not re.search(r"fcvt", text.split("__truncsfhf2:")[0]), "nothing is converted"


@pytest.mark.parametrize(("vectors", "rows", "fits"), [(2, 4, True), (1, 7, True), (3, 4, False)])
def test_both_kinds_of_sums_have_registers(vectors: int, rows: int, fits: bool) -> None:
    space = space_for(tasks()["dense"], board().hardware)
    values = {"vectors": vectors, "rows": rows, "rows2": 1, "panel": 1, "block": 1, "block2": 1, "pad": 0}
    assert RULE.legal(space.workload, board().hardware, values) == fits


def test_the_version_of_the_rule_follows_that_of_tiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(TILED), "version", TILED.version + 1)
    # The module again, beside the one that the program has.
    again = runpy.run_path(rule.__file__)["RULE"]
    assert again.version == RULE.version + 1
