from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import host.build.model as building
from host.build.kernel import compile_kernel
from host.compile.bundle_builder import BundleBuilder
from host.compile.model_compiler import ModelCompiler
from host.deploy import DeployOptions
from host.errors import ScheduleError
from host.gensor import Gensor
from host.progress import Silence, StageClock
from tests.unit.plans.models import STRIDED_SECOND_LAYER as MODEL
from tests.unit.tuning.simulated import profile

_LONG_S = 60.0


def _compiler(folder: Path, **options: Any) -> ModelCompiler:
    folder.mkdir(exist_ok=True)
    asked = DeployOptions(model=folder / "net.onnx", records=str(folder / "records.db"), **options)
    return ModelCompiler(asked, profile(), folder, StageClock(Silence()))


def test_kernels_are_compiled_while_the_next_programs_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()
    waited: list[bool] = []
    propose = Gensor.propose

    def compiled(*given: Any) -> Any:
        begun.set()
        return compile_kernel(*given)

    def proposed(self: Gensor, *given: Any) -> Any:
        waited.append(not waited or begun.wait(_LONG_S))
        return propose(self, *given)

    monkeypatch.setattr(building, "compile_kernel", compiled)
    monkeypatch.setattr(Gensor, "propose", proposed)
    compiler = _compiler(tmp_path)
    made = BundleBuilder(compiler).compile(MODEL)
    assert len(waited) == len(made.tasks) > 1
    assert all(waited)
    assert [span.name for span in compiler.clock.spans()][-3:] == ["propose", "build", "compile"]


def test_a_processor_needs_nothing_that_is_for_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cut between a GPU and its CPU brings SciPy: to load it takes as long as to lower a small model."""
    monkeypatch.setitem(sys.modules, "host.compile.placement", None)
    assert BundleBuilder(_compiler(tmp_path)).compile(MODEL).tasks


def test_programs_are_the_same_as_where_all_are_made_first(tmp_path: Path) -> None:
    compiler = _compiler(tmp_path)
    first = BundleBuilder(compiler).compile(MODEL)
    planned = compiler.plan(MODEL)
    second = BundleBuilder(_compiler(tmp_path / "other")).compile_planned(MODEL, planned)
    assert first.plan is not None
    assert dict(first.plan.chosen) == dict(planned.plan.chosen)
    assert first.tasks == second.tasks
    assert first.library.read_bytes() == second.library.read_bytes()


def test_a_task_without_a_program_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    propose = Gensor.propose

    def refused(self: Gensor, space: Any, *given: Any) -> Any:
        if not seen:
            seen.append(space.task.name)
            raise ScheduleError("it has no walk")
        return propose(self, space, *given)

    seen: list[str] = []
    monkeypatch.setattr(Gensor, "propose", refused)
    made = BundleBuilder(_compiler(tmp_path)).compile(MODEL)
    [without] = [task for task in made.tasks if task.name in seen]
    assert (without.source, without.reason) == ("default", "it has no walk")


def test_an_interruption_ends_the_compilation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Gensor, *given: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Gensor, "propose", interrupted)
    with pytest.raises(KeyboardInterrupt):
        BundleBuilder(_compiler(tmp_path)).compile(MODEL)
    assert not [one for one in threading.enumerate() if one.name.startswith("build")]


def test_measured_kernels_are_looked_up_first(tmp_path: Path) -> None:
    compiler = _compiler(tmp_path)
    assert compiler.only_constructs
    assert not _compiler(tmp_path, trials=1).only_constructs
    assert not _compiler(tmp_path, proposer="other").only_constructs
    (tmp_path / "records.db").touch()
    assert not compiler.only_constructs
