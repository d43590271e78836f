"""One node test after another: ONNX Runtime, then import, compile, run and compare.

First it writes the names of all cases with their families, a JSON object in one line. Then it reads names
from stdin and answers each with a line for every kernel that is about to run, and one for the outcome.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tvm
from onnx.backend.test.case.test_case import TestCase
from tvm import relax

from device_agent.board.machine import Machine
from host.compile.device_profile import profile_for
from host.compile.static_model import build, lower_model, propose
from host.errors import EdgeError, EngineError, ImportFailed, LoweringError, ShapeError, one_line
from host.importers import load_here as load
from host.importers.worker.transfer import pack_module, unpack_module
from host.model import ImportedModel
from host.progress import Silence, StageClock
from targets import MachineDescription
from tests.memory_check.execution import GuardedModel, results_of, workspaces_on_the_heap

# In the reason why a model has no module where `--value` may help, and elements of an input that it fixes.
_OPEN_SHAPE, _FEW = "depends on the model's inputs", 16
_OPEN_LENGTH = "depends on the values of inputs"

Outputs = list[list[np.ndarray]]

_ANSWERS = sys.stdout

# As in the verification of a bundle: relative to the largest expected value.
_TOLERANCE = {"float32": 1e-3, "float16": 1e-2, "bfloat16": 5e-2}


def _largest(values: np.ndarray) -> float:
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.max()) if finite.size else 0.0


def _tensors(values: Sequence[Any]) -> bool:
    return all(isinstance(value, np.ndarray) for value in values)


def _close(made: Sequence[np.ndarray], wanted: Sequence[Any], case: TestCase) -> str:
    """Why outputs differ from the expected ones, "" if they do not."""
    for index, (have, want) in enumerate(zip(made, wanted, strict=True)):
        if have.shape != want.shape or have.dtype != want.dtype:
            return f"output {index} is {have.dtype}{have.shape}, expected {want.dtype}{want.shape}"
        if want.dtype.kind in "OSU":
            if have.tolist() != want.tolist():
                return f"output {index} has other texts"
            continue
        a, b = have.astype(np.float64), want.astype(np.float64)
        bound = max(case.atol, _TOLERANCE.get(want.dtype.name, 0.0) * _largest(b))
        if not np.allclose(a, b, rtol=case.rtol, atol=bound, equal_nan=True):
            return f"output {index} differs by {np.nanmax(np.abs(a - b)):.3g}"
    return ""


def _run_onnxruntime(path: Path, inputs: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    return [session.run(None, dict(zip(names, arrays, strict=True))) for arrays in inputs]


def _reference(engine: str, path: Path, inputs: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
    """ONNX Runtime in this process, which is faster for a thousand tiny models."""
    try:
        return _run_onnxruntime(path, inputs)
    except Exception as error:  # of onnxruntime's own classes
        raise EngineError(str(error)) from error


def _run_plain(model: ImportedModel, cases: Sequence[Sequence[np.ndarray]], directory: Path) -> Outputs:
    """By TVM's own default compilation, which shows whether the importer or the lowering is wrong."""
    executable = tvm.compile(model.module, tvm.target.Target("llvm"))
    machine = relax.VirtualMachine(executable, tvm.cpu())
    return [_arrays(machine["main"](*map(tvm.runtime.tensor, arrays))) for arrays in cases]


def _run_built(model: ImportedModel, cases: Sequence[Sequence[np.ndarray]], directory: Path) -> Outputs:
    """By our own lowering, proposals and builder, as `sdk deploy` does without measuring, in guarded memory.

    Raises:
        MemoryFault: a kernel touches memory that is not its own, or reads what nobody has written.
    """
    profile = profile_for(MachineDescription(**Machine().describe()), "local", 1)
    clock = StageClock(Silence())
    # A path of its own: a library once loaded stays the one of its path.
    library = directory / f"{model.name}.so"
    lowered = lower_model(model, profile, clock)
    plan = propose(lowered, profile, 0, clock)
    with workspaces_on_the_heap():
        built = build(lowered, profile, plan, library, clock)
    guarded = GuardedModel(built.library, results_of(lowered), built.parameters, _announce)
    outputs = [guarded.run(arrays) for arrays in cases]
    if guarded.faults:
        raise MemoryFault("; ".join(guarded.faults[:5]))
    return outputs


class MemoryFault(Exception):
    """A kernel does with memory what it may not."""


def _announce(kernel: str) -> None:
    """Say which kernel runs, before it can end this process."""
    _answer({"kernel": kernel})


def _answer(content: dict[str, Any]) -> None:
    _ANSWERS.write(json.dumps(content) + "\n")
    _ANSWERS.flush()


def _arrays(result: Any) -> list[np.ndarray]:
    return [value.numpy() for value in ([result] if hasattr(result, "numpy") else result)]


def _with_constants(case: TestCase) -> tuple[onnx.ModelProto, list[Sequence[Any]]]:
    """The case with every input but the first as a constant, as real models have shapes and axes."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    arrays = case.data_sets[0][0]
    if len(case.data_sets) > 1 or not _tensors(arrays) or len(arrays) < 2:
        return model, [data[0] for data in case.data_sets]
    for value, array in list(zip(model.graph.input, arrays, strict=True))[1:]:
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
        model.graph.input.remove(value)
    return model, [arrays[:1]]


def _evaluate(case: TestCase, directory: Path, constants: bool) -> dict[str, Any]:
    path = directory / f"{case.name}.onnx"
    model_proto, inputs = case.model, [data[0] for data in case.data_sets]
    if constants:
        model_proto, inputs = _with_constants(case)
    path.write_bytes(model_proto.SerializeToString())
    try:
        peer = _run_onnxruntime(path, inputs)
    except Exception as error:  # noqa: BLE001 - whatever ONNX Runtime raises: the case is not counted
        return {"outcome": "excluded", "detail": str(error)[:200]}
    for made, data in zip(peer, case.data_sets, strict=True):
        if not _tensors(data[1]):
            continue  # sequences and optionals: it ran, that is enough to count the case
        difference = _close(made, data[1], case)
        if difference:
            return {"outcome": "excluded", "detail": f"ONNX Runtime: {difference}"}
    drawn = "--drawn" in sys.argv[1:]
    names = _names([value.name for value in model_proto.graph.input], inputs[0])
    inputs = [_flat(case_inputs) for case_inputs in inputs]
    shapes = {
        name: array.shape
        for name, array in zip(names, inputs[0], strict=True)
        if isinstance(array, np.ndarray)
    }
    # Inputs drawn by the importer, as for a user's model, or the case's own.
    given: dict[str, list[float]] = {}
    try:
        model = load(path, shapes, samples=None if drawn else inputs, reference=_reference)
        open_shape = model.module is None and _OPEN_SHAPE in model.reason
    except ImportFailed as error:
        if _OPEN_LENGTH not in str(error):
            raise
        open_shape = True
    if open_shape:
        given = _values(names, inputs)
        inputs = [[a for name, a in zip(names, case, strict=True) if name not in given] for case in inputs]
        samples = None if drawn else inputs
        model = load(path, shapes, samples=samples, reference=_reference, values=given)
    if model.module is None:
        return {"outcome": "reason", "operator": model.operator, "detail": model.reason}
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        # As it comes from the worker that reads a user's file.
        handed = pack_module(model.module, Path(folder))
        model = replace(model, module=unpack_module(handed, Path(folder)))
    run = _run_plain if "--plain" in sys.argv[1:] else _run_built
    for made, data in zip(run(model, inputs, directory), case.data_sets, strict=True):
        difference = _close(made, _flat(data[1]), case)
        if difference:
            return {"outcome": "wrong", "detail": difference}
    return {"outcome": "passed", "values": given} if given else {"outcome": "passed"}


def _names(names: Sequence[str], inputs: Sequence[Any]) -> list[str]:
    """The names of the tensors that enter the model; those of a sequence have numbers."""
    found: list[str] = []
    for name, given in zip(names, inputs, strict=True):
        found += [f"{name}.{place}" for place in range(len(given))] if isinstance(given, list) else [name]
    return found


def _flat(values: Sequence[Any]) -> list[Any]:
    """Tensors, with those of sequences in their places."""
    flat: list[Any] = []
    for value in values:
        flat += map(np.asarray, value) if isinstance(value, list) else [value]
    return flat


def _values(names: Sequence[str], cases: Sequence[Sequence[np.ndarray]]) -> dict[str, list[float]]:
    """What a user gives by `--value`: the numbers of the inputs that are a few whole ones in every case."""
    return {
        name: arrays[0].reshape(-1).tolist()
        for name, arrays in zip(names, zip(*cases, strict=True), strict=True)
        if arrays[0].ndim <= 1 and arrays[0].dtype.kind in "iu" and arrays[0].size <= _FEW
        if all(np.array_equal(array, arrays[0]) for array in arrays)
    }


def _family(case: TestCase) -> str:
    """The operator that a case is about: the one that its model begins with."""
    return next((node.op_type for node in case.model.graph.node), "")


def main() -> int:
    """Answer names until stdin ends."""
    warnings.simplefilter("ignore")
    from onnx.backend.test.loader import load_model_tests

    cases = {case.name: case for case in load_model_tests(kind="node")}
    sys.stdout = sys.stderr
    _answer({case.name: _family(case) for case in cases.values()})
    with tempfile.TemporaryDirectory(prefix="edgetlm-nodes-") as directory:
        for line in sys.stdin:
            name = line.strip()
            try:
                result = _evaluate(cases[name], Path(directory), "--constants" in sys.argv[1:])
            except ImportFailed as error:
                result = {"outcome": "reason", "operator": error.operator, "detail": str(error)}
            except ShapeError as error:  # such as a sequence without elements
                result = {"outcome": "reason", "operator": None, "detail": str(error)}
            except LoweringError as error:
                result = {"outcome": "reason", "operator": None, "detail": f"lowering: {error}"}
            except MemoryFault as error:
                result = {"outcome": "wrong", "detail": str(error)}
            except EdgeError as error:
                result = {"outcome": "error", "detail": f"{type(error).__name__}: {error}"}
            except Exception as error:  # noqa: BLE001 - the table counts it; a case must not end the others
                text = one_line(error)
                result = {"outcome": "error", "detail": f"{type(error).__name__}: {text[-300:]}"}
            _answer({"name": name} | result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
