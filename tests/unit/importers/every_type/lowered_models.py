"""ONNX nodes through the importer and the compiler's lowering, beside ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import NodeProto, helper
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidGraph, NotImplemented

from host.importers import load_here
from host.lowering import lower
from tests.unit.lowering.harness import board, run_lowered


def both(
    path: Path, nodes: Sequence[NodeProto], inputs: Mapping[str, np.ndarray], opset: int = 20
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """What the compiler and what ONNX Runtime makes of each node's first output.

    Args:
        path: where the model is written.
        nodes: each of which makes an output of the model.
        inputs: by name.
        opset: version of the standard operators.
    """
    names = _outputs(nodes)
    wanted = _by_onnx_runtime(
        _model(nodes, inputs, [onnx.ValueInfoProto(name=one) for one in names], opset), inputs
    )
    outputs = [_declared(name, array) for name, array in zip(names, wanted, strict=True)]
    path.write_bytes(_model(nodes, inputs, outputs, opset).SerializeToString())
    given = list(inputs.values())
    model = load_here(path, samples=[given], reference=lambda engine, file, cases: [wanted])
    assert model.module is not None, f"{model.operator}: {model.reason}"
    return run_lowered(lower(model, board()), given), wanted


def lowered_as_onnxruntime(
    path: Path,
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, np.ndarray],
    relative: float = 0.0,
    opset: int = 20,
) -> None:
    """Fail unless the compiled nodes give what ONNX Runtime does, within `relative`, NaN included."""
    names = _outputs(nodes)
    for name, made, wanted in zip(names, *both(path, nodes, inputs, opset), strict=True):
        assert (made.dtype, made.shape) == (wanted.dtype, wanted.shape), name
        np.testing.assert_allclose(made, wanted, rtol=relative, atol=relative, err_msg=name)


def taken(nodes: Sequence[NodeProto], inputs: Mapping[str, np.ndarray], opset: int = 20) -> bool:
    """Whether ONNX Runtime computes nodes of inputs of these types."""
    made = [onnx.ValueInfoProto(name=name) for name in _outputs(nodes)]
    try:
        _session(_model(nodes, inputs, made, opset))
    except (InvalidGraph, NotImplemented):
        return False
    return True


def _outputs(nodes: Sequence[NodeProto]) -> list[str]:
    """The results that begin with "y"."""
    return [name for node in nodes for name in node.output if name.startswith("y")]


def _model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, np.ndarray],
    outputs: Sequence[onnx.ValueInfoProto],
    opset: int,
) -> onnx.ModelProto:
    declared = [_declared(name, array) for name, array in inputs.items()]
    body = helper.make_graph(list(nodes), "nodes", declared, list(outputs))
    return helper.make_model(body, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def _declared(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def _by_onnx_runtime(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    made: list[np.ndarray] = _session(model).run(None, dict(inputs))
    return made


def _session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    # As the file says: constants are computed by the compiler.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
