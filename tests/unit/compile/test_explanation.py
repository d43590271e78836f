"""The kernels of a bundle that was just made: what is known of them already is not found out again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from host import bundle, schedules
from host.bundle import TASKS
from host.compile.explanation import Explanation, explained_kernels, path_to
from host.compile.static_model import Plan
from host.compile.stored_tasks.file import tasks_json
from host.gensor import Gensor
from host.gensor.walk import Step
from host.manifest import Kernel, Manifest
from host.model import Candidate, DeviceProfile, Signature, TensorSpec
from host.plans.shared_kernels import program_of_one_thread
from host.progress import Silence, StageClock
from host.schedules import DesignSpace, space_for
from tests.unit.schedules import functions as fn

BOARD = fn.board()
PROFILE = DeviceProfile("desk", BOARD, BOARD.hardware, 1)
TASKS_OF_MODEL = (fn.task(fn.dense(64, 192, 96), "dense"), fn.task(fn.depthwise(14, 96, 1), "depthwise"))


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, DesignSpace]:
    """The tasks of a bundle in the folder, and their design spaces."""
    spaces = {one.workload_hash: space_for(one, PROFILE.hardware, PROFILE.threads) for one in TASKS_OF_MODEL}
    chosen = {key: Gensor().propose(space, PROFILE, (), 1, seed=0)[0] for key, space in spaces.items()}
    _write(tmp_path, monkeypatch, Plan(spaces, chosen, {}), PROFILE)
    return spaces


def _write(folder: Path, monkeypatch: pytest.MonkeyPatch, plan: Plan, profile: DeviceProfile) -> None:
    chosen = plan.chosen
    (folder / TASKS).write_text(tasks_json(TASKS_OF_MODEL, plan, profile, 0))
    kernels = [
        Kernel(
            name=one.name,
            task=one.workload_hash,
            weight=1,
            source="gensor",
            rule=chosen[one.workload_hash].rule,
            decisions=dict(chosen[one.workload_hash].decisions),
        )
        for one in TASKS_OF_MODEL
    ]
    signature = Signature((TensorSpec("x", (1,), "float32"),), (TensorSpec("y", (1,), "float32"),))
    manifest = Manifest.model_construct(name="net", kernels=tuple(kernels), signature=signature)
    monkeypatch.setattr(bundle, "read_manifest", lambda directory: manifest)


def _explained(folder: Path, spaces: dict[str, DesignSpace] | None = None) -> tuple[Explanation, ...]:
    return explained_kernels(folder, StageClock(Silence()), spaces)


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made: list[str] = []

    def space_of(task, *arguments):
        made.append(task.name)
        return space_for(task, *arguments)

    monkeypatch.setattr(schedules, "space_for", space_of)
    return made


def test_spaces_that_were_made_are_used(
    written: dict[str, DesignSpace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _explained(tmp_path)
    made = _counted(monkeypatch)
    found = _explained(tmp_path, written)
    assert made == []
    assert len(found) == len(TASKS_OF_MODEL)
    for one, other in zip(found, before, strict=True):
        assert one.path and one.program
        for name in ("kernel", "device", "roofline", "path", "trail", "shares", "remark", "program"):
            assert getattr(one, name) == getattr(other, name), name


@pytest.mark.parametrize("change", ["threads", "hardware"])
def test_spaces_for_another_processor_are_made_again(
    written: dict[str, DesignSpace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    before = _explained(tmp_path)
    other = {"threads": 2} if change == "threads" else {"hardware": replace(BOARD.hardware, frequency_hz=1e9)}
    made = _counted(monkeypatch)
    found = _explained(tmp_path, {key: replace(space, **other) for key, space in written.items()})
    assert set(made) == {one.name for one in TASKS_OF_MODEL}
    assert [one.roofline for one in found] == [one.roofline for one in before]


def test_programs_that_threads_do_not_share_have_their_walks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = replace(PROFILE, threads=2)
    spaces = {one.workload_hash: space_for(one, two.hardware, 2) for one in TASKS_OF_MODEL}
    chosen: dict[str, Candidate] = {}
    for key, space in spaces.items():
        alone = program_of_one_thread(space, two, 0)
        assert alone is not None
        chosen[key] = alone
    _write(tmp_path, monkeypatch, Plan(spaces, chosen, {}), two)
    met = []
    for key, space in spaces.items():
        steps: list[Step] = []
        Gensor().retrace(space, two, 0, steps.append)
        met.append(bool(path_to(steps, {name: int(value) for name, value in chosen[key].decisions})))
    assert not all(met), "the walks for two threads lead to these programs, too"
    for one in _explained(tmp_path):
        assert one.path and not one.remark
