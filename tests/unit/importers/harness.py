"""Small ONNX graphs through the importer and plain TVM, beside ONNX's own reference evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tvm
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tvm import relax

from host.importers import load_here as load
from host.lowering import lower
from host.model import ImportedModel
from tests.unit.lowering.harness import board, run, run_cases


def _has_own_operators(module: tvm.IRModule) -> bool:
    """Whether it holds operators that TVM alone cannot run."""
    found: list[bool] = []

    def visit(expression: object) -> None:
        found.append(isinstance(expression, relax.ExternFunc))

    relax.analysis.post_order_visit(module["main"].body, visit)
    return any(found)


def check(model: ImportedModel, tolerance: float = 1e-4) -> ImportedModel:
    """Fail unless the module gives the golden outputs of every case."""
    assert model.module is not None, model.reason
    module, parameters = model.module, ()
    if _has_own_operators(module):
        lowered = lower(model, board())
        module, parameters = lowered.module, lowered.parameters
    outputs = run_cases(module, [[*case.inputs, *parameters] for case in model.golden])
    for case, results in zip(model.golden, outputs, strict=True):
        for made, wanted in zip(results, case.outputs, strict=True):
            assert made.dtype == wanted.dtype and made.shape == wanted.shape
            bound = tolerance * max(1e-6, float(np.abs(wanted.astype(np.float64)).max(initial=0)))
            np.testing.assert_allclose(made, wanted, rtol=0, atol=bound)
    return model


def value(
    name: str, array: np.ndarray | Any, shape: Sequence[int | str] | None = None
) -> onnx.ValueInfoProto:
    """The declaration of an input or output like an array."""
    dtype = helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype)
    return helper.make_tensor_value_info(name, dtype, np.asarray(array).shape if shape is None else shape)


def graph(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, np.ndarray],
    outputs: Sequence[onnx.ValueInfoProto],
    constants: dict[str, np.ndarray] | None = None,
    opset: int = 18,
) -> onnx.ModelProto:
    """A model."""
    tensors = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    declared = [value(name, array) for name, array in inputs.items()]
    body = helper.make_graph(list(nodes), "small", declared, list(outputs), tensors)
    return helper.make_model(body, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def run_node(
    path: Path,
    node: onnx.NodeProto,
    inputs: dict[str, np.ndarray],
    constants: dict[str, np.ndarray] | None = None,
    opset: int = 18,
) -> list[np.ndarray]:
    """Outputs of one node through importer and compiler, compared with the reference evaluator's."""
    untyped = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    model = graph([node], inputs, untyped, constants, opset)
    wanted = ReferenceEvaluator(model).run(None, inputs)
    del model.graph.output[:]
    names = [name for name in node.output if name]
    model.graph.output.extend(value(name, array) for name, array in zip(names, wanted, strict=True))
    return run_model(path, model, inputs, wanted, relative=1e-3, absolute=1e-5)


def run_model(
    path: Path,
    model: onnx.ModelProto,
    inputs: dict[str, np.ndarray],
    wanted: Sequence[np.ndarray],
    relative: float = 0.0,
    absolute: float = 0.0,
) -> list[np.ndarray]:
    """Outputs of a model through importer and compiler, compared with what is wanted."""
    path.write_bytes(model.SerializeToString())
    samples = [list(inputs.values())]
    imported = load(path, samples=samples, reference=lambda engine, file, given: [list(wanted)])
    assert imported.module is not None, imported.reason
    made = run(imported.module, samples[0])
    for have, want in zip(made, wanted, strict=True):
        assert have.dtype == np.asarray(want).dtype
        np.testing.assert_allclose(have, want, rtol=relative, atol=absolute)
    return made
