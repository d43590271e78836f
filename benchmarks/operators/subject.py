"""An operator as the contenders get it: a lowered task for ours, an ONNX node for the library."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.operators.configurations import Operator
from host.errors import LoweringError
from host.importers import load_here as load
from host.lowering import lower
from host.model import DeviceProfile, GoldenCase, LoweredModel, Task

_OPSET = 18
_TO_NCHW, _TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)


@dataclass(frozen=True, eq=False)
class Subject:
    """One operator, prepared.

    Attributes:
        operator: what it is.
        lowered: the model that holds it, as our compiler lowers it.
        task: the function that is the operator; views and nothing else lie around it.
        inputs, expected: a golden case of the model, from ONNX Runtime.
        library_model: ONNX file of the bare node, images as NCHW.
        library_inputs, library_expected: the same case for that file.
        direct: the same without what the stock rules cannot schedule: Winograd's algorithm, and ragged rows
            that are read in whole vectors (they are copied, as in a function of any length); None in that.
    """

    operator: Operator
    lowered: LoweredModel
    task: Task
    inputs: tuple[np.ndarray, ...]
    expected: np.ndarray
    library_model: Path
    library_inputs: tuple[np.ndarray, ...]
    library_expected: np.ndarray
    direct: Subject | None = None

    def form(self, direct: bool) -> Subject:
        """The operator in the form that the product chose, or in the direct one."""
        return self.direct if direct and self.direct is not None else self

    @property
    def arguments(self) -> tuple[tuple[tuple[int, ...], str], ...]:
        """Shape and dtype of every argument of the task's function."""
        parameters = self.task.function.params
        return tuple((tuple(int(d) for d in p.shape), str(p.dtype)) for p in parameters)


def prepare(operator: Operator, profile: DeviceProfile, folder: Path) -> Subject:
    """Write the operator's model files, import and lower it.

    Raises:
        LoweringError: the operator does not become one function.
    """
    library_model = folder / f"{operator.name}.library.onnx"
    onnx.save(make_model(operator, images_last=False), str(library_model))
    path = folder / f"{operator.name}.onnx"
    onnx.save(make_model(operator, images_last=operator.image), str(path))
    model = load(path, golden_cases=1)
    chosen = lower(model, profile.board)
    direct = lower(model, profile.board, approximate=False, any_length=True)
    names = [task.name for lowered in (chosen, direct) for task in lowered.tasks]
    if len(names) != 2:
        raise LoweringError(f"{operator.name} was lowered to {names}; the figures are of one function each")
    case = model.golden[0]
    plain = _subject(operator, direct, case, library_model, None)
    return _subject(operator, chosen, case, library_model, plain)


def _subject(
    operator: Operator, lowered: LoweredModel, case: GoldenCase, library_model: Path, direct: Subject | None
) -> Subject:
    turned = [_turn(array, _TO_NCHW, operator.image) for array in (*case.inputs, *case.outputs)]
    return Subject(
        operator=operator,
        lowered=lowered,
        task=lowered.tasks[0],
        inputs=case.inputs,
        expected=case.outputs[0],
        library_model=library_model,
        library_inputs=tuple(turned[: len(case.inputs)]),
        library_expected=turned[-1],
        direct=direct,
    )


def _turn(array: np.ndarray, axes: tuple[int, ...], image: bool) -> np.ndarray:
    return np.ascontiguousarray(np.transpose(array, axes)) if image else array


def make_model(operator: Operator, images_last: bool) -> onnx.ModelProto:
    """The operator as a model of one node, with seeded weights.

    Args:
        operator: which.
        images_last: images come and go as NHWC, with a transpose on either side of the node. The layout
            pass takes both away, as between the convolutions of a network.
    """
    inputs = [f"x{index}" for index in range(len(operator.inputs))]
    weights = [f"w{index}" for index in range(len(operator.weights))]
    nodes, shapes, fed, result = [], list(operator.inputs), list(inputs), "y"
    if images_last:
        shapes = [tuple(shape[axis] for axis in _TO_NHWC) for shape in shapes]
        fed = [f"{name}_nchw" for name in inputs]
        result = "y_nchw"
        nodes += [
            helper.make_node("Transpose", [name], [to], perm=_TO_NCHW)
            for name, to in zip(inputs, fed, strict=True)
        ]
    nodes.append(helper.make_node(operator.node, [*fed, *weights], [result], **operator.attributes))
    if images_last:
        nodes.append(helper.make_node("Transpose", [result], ["y"], perm=_TO_NHWC))
    graph = helper.make_graph(
        nodes,
        operator.name,
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in zip(inputs, shapes, strict=True)
        ],
        [onnx.ValueInfoProto(name="y")],
        [
            numpy_helper.from_array(array, name)
            for name, array in zip(weights, _weights(operator), strict=True)
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=10)
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    onnx.checker.check_model(inferred)
    return inferred


def _weights(operator: Operator) -> list[np.ndarray]:
    """Normal numbers, scaled so that outputs stay near 1; the same for the same operator."""
    seed = int.from_bytes(hashlib.sha256(operator.name.encode()).digest()[:8], "big")
    generator = np.random.default_rng(seed)
    arrays = []
    for shape in operator.weights:
        fan_in = int(np.prod(shape[1:])) if operator.node == "Conv" else shape[0]
        scale = 1.0 if len(shape) == 1 else fan_in**-0.5
        arrays.append((generator.standard_normal(shape) * scale).astype(np.float32))
    return arrays
