"""What compiled models compute: their values, and that no kernel reads or writes what it may not."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import onnx

from host.errors import EdgeError, EngineError, ScheduleError
from host.model import DeviceProfile, LoweredModel
from tests.fuzz.case import Case, Outcome
from tests.fuzz.children import ended
from tests.fuzz.random_models.model import random_model, random_quantised_model

_LONGEST_S = 180.0
_LEVELS = ("x86_64-v4", "x86_64-v3", "x86_64-v2")
_CPU = Path("/proc/cpuinfo")
HAS_AVX512 = _CPU.exists() and " avx512vl" in _CPU.read_text(encoding="utf-8")
MODEL = "model.onnx"


class Numbers:
    """The target; the file is the model, and its name's number says how it is compiled."""

    name = "numbers"
    apart = True
    random_model = staticmethod(random_model)
    # Whether outputs may part as far as those of ONNX Runtime do with and without its optimisations.
    within_spread = False
    # Vectors of 16, 8 or 4 floats.
    levels: tuple[str, ...] = _LEVELS

    def open(self, place: Path) -> None:
        """Load the compiler once; cases run in children, which a kernel may end."""
        import onnxruntime  # noqa: F401

        import tests.memory_check.execution  # noqa: F401

        for name in ("tmp", "cache"):
            (place / name).mkdir()
        # Kernels that ask for workspaces from other threads would wait for the interpreter for ever.
        os.environ.update(XDG_CACHE_HOME=str(place / "cache"), TMPDIR=str(place / "tmp"), TVM_NUM_THREADS="1")
        tempfile.tempdir = None
        self._place = place

    def close(self) -> None:
        """Nothing is left running."""

    def corpus(self) -> list[Case]:
        """Everything that was a fault once."""
        from tests.fuzz.corpus import number_models

        return number_models.cases()

    def case(self, seed: int) -> Case:
        """A model of operators drawn by chance."""
        model = self.random_model(seed)
        return Case(f"{self.name}-{seed}", {MODEL: model.SerializeToString(deterministic=True)})

    def run(self, case: Case) -> Outcome:
        """Import, compile and run it."""
        with tempfile.TemporaryDirectory(dir=self._place / "tmp") as name:
            folder = Path(name)
            path = case.write(folder)
            (folder / "kernel").touch()
            pid = os.fork()
            if pid == 0:
                _try(path, _way_of(case.name), folder, self.within_spread, self.levels)
            code = ended(pid, _LONGEST_S)
            kernel = (folder / "kernel").read_text()
            if code is None:
                return Outcome(
                    "lost", violation=f"over {_LONGEST_S:.0f} s; {kernel or 'no kernel'} was at work"
                )
            if code < 0:
                what = f"{signal.Signals(-code).name} in {kernel or 'no kernel'}"
                return Outcome("lost", violation=f"{what}: it reads or writes beyond its memory")
            return Outcome(**json.loads((folder / "outcome.json").read_text()))


class Quantised(Numbers):
    """The target of quantised models."""

    name = "quantised"
    random_model = staticmethod(random_quantised_model)
    within_spread = True
    # Kernels of bytes call instructions of AVX-512 by name, which not every machine has.
    levels = _LEVELS if HAS_AVX512 else (_LEVELS[1], *_LEVELS[1:])

    def corpus(self) -> list[Case]:
        """Everything that was a fault once."""
        from tests.fuzz.corpus import quantised_models

        return quantised_models.cases()


def _way_of(name: str) -> int:
    number = name.rpartition("-")[2]
    return int(number) if number.isdigit() else 0


def _try(path: Path, way: int, folder: Path, within_spread: bool, levels: Sequence[str]) -> NoReturn:
    code = 1
    try:
        os.setsid()
        try:
            kind, message, violation = _judged(path, way, folder, within_spread, levels)
        except EdgeError as error:
            kind, message, violation = "refused", str(error), ""
        except Exception as error:  # noqa: BLE001 - what gets here is a finding
            kind, message = "escaped", str(error)[:300]
            violation = f"{type(error).__name__}: {message}"
        answer = {"kind": kind, "message": message, "violation": violation}
        (folder / "outcome.json").write_text(json.dumps(answer))
        code = 0
    finally:
        os._exit(code)


def _judged(
    path: Path, way: int, folder: Path, within_spread: bool, levels: Sequence[str]
) -> tuple[str, str, str]:
    from host.compare.verification import verify
    from host.compile.static_model import build, lower_model
    from host.importers import load_here
    from host.importers.golden import with_spread
    from host.progress import Silence, StageClock
    from tests.avx512 import carried_out_in_shorter_vectors
    from tests.memory_check.execution import GuardedModel, results_of, workspaces_on_the_heap

    model = load_here(path, seed=way, golden_cases=2, reference=_run_onnxruntime)
    if model.module is None:
        return "refused", f"{model.operator}: {model.reason}", ""
    golden = model.golden
    if within_spread:
        # As an import does: a sum of bytes that lies between two steps falls to either side.
        golden = with_spread(golden, "onnxruntime", _in_reals(path, folder), _run_unoptimised)
    clock = StageClock(Silence())
    profile = _profile(levels[way % 3], way)
    lowered = lower_model(model, profile, clock)
    plan = _plan(lowered, profile, way)
    # Not every machine has AVX-512.
    native = within_spread or way % 3 != 0
    shorter = nullcontext() if native else carried_out_in_shorter_vectors()
    with workspaces_on_the_heap(), shorter:
        made = build(lowered, profile, plan, folder / "model.so", clock)
    guarded = GuardedModel(made.library, results_of(lowered), made.parameters, (folder / "kernel").write_text)
    verdict, _ = verify(guarded, model.signature, golden)
    wrong = "; ".join(guarded.faults[:5])
    if not wrong and not verdict.passed:
        wrong = f"{verdict.message}; operators: {_operators(path)}"
    # Compiling takes its time, longer than reading a file may: no "ok".
    return "answered", "", wrong


def _profile(level: str, way: int) -> DeviceProfile:
    """A machine of a level, with one thread or two."""
    from host.compile.device_profile import target_profile

    return target_profile(level, 1 + way // 3 % 2)


def _plan(lowered: LoweredModel, profile: DeviceProfile, way: int) -> Any:
    """Gensor's programs; for every other model, programs drawn from the design spaces."""
    from host.compile.static_model import Plan, propose
    from host.progress import Silence, StageClock
    from host.schedules import space_for

    if way % 2 == 0:
        return propose(lowered, profile, way, StageClock(Silence()))
    rng = Random(f"programs/{way}")
    spaces, chosen, reasons = {}, {}, {}
    for task in lowered.tasks:
        key = task.workload_hash
        try:
            spaces[key] = space_for(task, profile.hardware, profile.threads)
            chosen[key] = spaces[key].candidate(spaces[key].sample(rng), "random")
        except ScheduleError as error:
            reasons[key] = str(error)
    return Plan(spaces, chosen, reasons)


def _run_onnxruntime(engine: str, path: Path, inputs: Any) -> Any:
    """In this process, which is ten times as fast as in one of its own."""
    return _run(path, inputs, optimised=True)


def _run_unoptimised(engine: str, path: Path, inputs: Any) -> Any:
    return _run(path, inputs, optimised=False)


def _run(path: Path, inputs: Any, optimised: bool) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        names = [value.name for value in session.get_inputs()]
        return [session.run(None, dict(zip(names, arrays, strict=True))) for arrays in inputs]
    except Exception as error:  # of onnxruntime's own classes
        raise EngineError(str(error)) from error


def _in_reals(path: Path, folder: Path) -> Path:
    """A file with quantised operators in real numbers, or the file itself where it has none."""
    from host.importers.onnx.contributed import expand_contributed, rounds_inside

    model = onnx.shape_inference.infer_shapes(onnx.load(path))
    if not rounds_inside(model) or not expand_contributed(path.name, model, sums_in_reals=True):
        return path
    onnx.save(model, folder / "reals.onnx")
    return folder / "reals.onnx"


def _operators(path: Path) -> str:
    return " ".join(node.op_type for node in onnx.load(path).graph.node)
