"""Reading an ONNX file: checked, its large weights apart from the graph.

Every later step works on the graph without the large weights, so that a 440 MB model is not copied by each
of them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper, numpy_helper

from device_agent.contract.limits import LIMITS
from device_agent.contract.text import printable
from host.errors import ImportFailed, ModelFileError
from host.importers.bounds import check_model
from host.importers.onnx.graph_order import sort_nodes
from host.importers.onnx.mapped_weights import SplitFile, split_file
from host.importers.parameters import is_parameter
from host.importers.pins import DeclaredInput

# Weights above this many elements leave the graph. Shapes, axes and the like stay, because passes read them.
LARGE_ELEMENTS = 1024

# A file with weights may be this much larger than twice what the model uses of it.
_SPARE_BYTES = 64 << 20

_PROTOBUF_LIMIT_BYTES = 2**31 - 2**20


@dataclass(eq=False)
class OnnxFile:
    """An ONNX model taken apart.

    Attributes:
        name: file name, for messages.
        model: the graph; large weights are missing from its initialisers.
        weights: large weights by name.
        inputs: what a caller has to give, in order (initialisers listed as inputs are not among them).
        external: whether weights lie in other files.
    """

    name: str
    model: onnx.ModelProto
    weights: dict[str, np.ndarray]
    inputs: tuple[DeclaredInput, ...]
    external: bool
    files: tuple[Path, ...] = field(default=())

    @property
    def parameters(self) -> int:
        """Elements of its weights; they are counted before the large ones go to the module."""
        shapes = [(array.shape, array.dtype.name) for array in self.weights.values()]
        tensors = [*self.model.graph.initializer]
        for node in self.model.graph.node:
            tensors += [
                entry.t for entry in node.attribute if node.op_type == "Constant" and entry.name == "value"
            ]
        shapes += [
            (tuple(tensor.dims), helper.tensor_dtype_to_np_dtype(tensor.data_type).name)
            for tensor in tensors
            if tensor.data_type != TensorProto.STRING
        ]
        return sum(math.prod(shape) for shape, dtype in shapes if is_parameter(shape, dtype))

    @property
    def opset(self) -> int:
        """Version of the standard operators that the graph is written in."""
        return next(
            (entry.version for entry in self.model.opset_import if entry.domain in ("", "ai.onnx")), 1
        )


class SequencesFound(ImportFailed):
    """An input or output is a sequence of tensors of numbers; see `sequences.interface`.

    Attributes:
        files: the file, and those of its weights.
    """

    files: tuple[Path, ...] = ()


def read_onnx(path: Path) -> OnnxFile:
    """Read and check a file.

    Raises:
        SequencesFound: an input or output is a sequence of tensors of numbers, and all others are tensors.
        ModelFileError: not an ONNX model, truncated, of an unknown opset, or with NaN weights.
        ImportFailed: an input or output is text or another thing that is not a tensor of numbers.
    """
    model, split = _parse(path)
    check_model(path.name, model)
    _check_versions(path.name, model)
    files = [path]
    weights: dict[str, np.ndarray] = {}
    small: list[TensorProto] = []
    for place, tensor in enumerate(model.graph.initializer):
        array = _weight(path, tensor, files, split, place)
        if array is None or array.size <= LARGE_ELEMENTS:
            small.append(tensor if array is None else _inline(tensor, array))
        else:
            weights[tensor.name] = array
    _check_weight_files(path, model, files)
    constants = {tensor.name for tensor in model.graph.initializer}
    skeleton = _without_initializers(model)
    del model  # protobuf frees a message only as a whole
    skeleton.graph.initializer.extend(small)
    sort_nodes(skeleton.graph)
    listed = [value for value in skeleton.graph.input if value.name not in constants]
    del skeleton.graph.input[:]
    skeleton.graph.input.extend(listed)
    for kind, values in (("input", listed), ("output", skeleton.graph.output)):
        for value in values:
            _check_tensor(path.name, kind, value)
    sequences = [value.name for value in (*listed, *skeleton.graph.output) if is_sequence(value)]
    if sequences:
        found = SequencesFound(f"{path.name}: {printable(sequences[0], 80)!r} is a sequence")
        found.files = tuple(files)
        raise found
    inputs = tuple(declared_input(value) for value in listed)
    return OnnxFile(path.name, skeleton, weights, inputs, len(files) > 1, tuple(files))


def _parse(path: Path) -> tuple[onnx.ModelProto, SplitFile]:
    """The model without the bytes of its large weights, and where these lie."""
    model = onnx.ModelProto()
    if path.stat().st_size >= 1 << 31:
        raise ModelFileError(
            f"{path}: an ONNX file has at most 2 GB: export the model with its weights in another file"
        )
    try:
        split = split_file(path)
        model.ParseFromString(split.skeleton)
    except DecodeError:
        raise ModelFileError(
            f"{path}: not an ONNX model, or a truncated one: export or download the file again"
        ) from None
    if model.HasField("graph") and model.opset_import and model.graph.node and not model.graph.output:
        raise ModelFileError(f"{path}: the graph has no outputs: export the model with what it returns")
    if not model.HasField("graph") or not model.graph.output or not model.opset_import:
        raise ModelFileError(f"{path}: not an ONNX model (no graph in it): export or download the file again")
    return model, split


def _check_versions(name: str, model: onnx.ModelProto) -> None:
    newest = onnx.defs.onnx_opset_version()
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx") and not 1 <= entry.version <= newest:
            raise ModelFileError(
                f"{name}: operator set {entry.version} is unknown (1 to {newest} are): "
                "export the model with a supported opset_version"
            )


def _weight(
    path: Path, tensor: TensorProto, files: list[Path], split: SplitFile, place: int
) -> np.ndarray | None:
    """The values of an initialiser; None for those that are not numbers."""
    if not tensor.name:
        raise ModelFileError(f"{path}: a weight without a name: export the model again")
    if tensor.data_type == TensorProto.STRING:
        return None
    try:
        if tensor.data_location == TensorProto.EXTERNAL:
            array = _external(path, tensor, files)
        else:
            array = _inside(tensor, split, place)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise ModelFileError(
            f"{path}: weight {tensor.name!r} cannot be read ({printable(error, 100)}): export it again"
        ) from error
    if array.dtype.kind == "f" and array.size and np.isnan(array.min()):
        raise ModelFileError(
            f"{path}: weight {tensor.name!r} holds NaN: the model cannot give useful outputs"
        )
    return array


def _inside(tensor: TensorProto, split: SplitFile, place: int) -> np.ndarray:
    """The values of a weight within the file; those of a large one stay pages of the file."""
    if place not in split.raw:
        return np.asarray(numpy_helper.to_array(tensor))
    begin, end = split.raw[place]
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    if dtype.kind not in "fiub" or sys.byteorder != "little":
        # Packed in another way than NumPy has them.
        tensor.raw_data = split.content[begin:end]
        return np.asarray(numpy_helper.to_array(tensor))
    count, rest = divmod(end - begin, dtype.itemsize)
    if rest:
        raise ValueError(f"{end - begin} bytes are no whole number of elements")
    return np.frombuffer(split.content, dtype, count, begin).reshape(tuple(tensor.dims))


def _external(path: Path, tensor: TensorProto, files: list[Path]) -> np.ndarray:
    """Map a weight that lies in another file; nothing is read yet."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = path.parent / entries.get("location", "")
    if not location.resolve().is_relative_to(path.parent.resolve()):
        raise ModelFileError(f"{path}: weight {tensor.name!r} points outside the model's directory")
    if not location.is_file():
        raise ModelFileError(f"{path}: its weights file {location.name} is missing: put it beside the model")
    if location not in files:
        if len(files) > LIMITS.model.weight_files:
            raise ModelFileError(f"{path}: its weights lie in over {LIMITS.model.weight_files} files")
        files.append(location)
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    shape = tuple(tensor.dims)
    offset, size = int(entries.get("offset", 0)), int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if offset < 0 or int(entries.get("length", size)) != size:
        raise ModelFileError(
            f"{path}: weight {tensor.name!r} lies at bytes that no such weight has: export the model again"
        )
    if tensor.data_type in (TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT4E2M1):
        raise ModelFileError(
            f"{path}: weight {tensor.name!r} has 4-bit values in another file: store it inside"
        )
    if location.stat().st_size < offset + size:
        raise ModelFileError(
            f"{path}: its weights file {location.name} is truncated: copy or export it again"
        )
    if size == 0:
        return np.zeros(shape, dtype)
    return np.memmap(location, dtype=dtype, mode="r", offset=offset, shape=shape)


def _check_weight_files(path: Path, model: onnx.ModelProto, files: list[Path]) -> None:
    """Refuse files that are far larger than the weights in them: all of them is hashed and copied.

    Raises:
        ModelFileError: which file.
    """
    used: dict[str, int] = {}
    for tensor in model.graph.initializer:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        if tensor.data_location == TensorProto.EXTERNAL and "location" in entries:
            itemsize = helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
            end = int(entries.get("offset", 0)) + math.prod(tensor.dims) * itemsize
            used[entries["location"]] = max(used.get(entries["location"], 0), end)
    for location, end in used.items():
        size = (path.parent / location).stat().st_size
        if size > 2 * end + _SPARE_BYTES:
            raise ModelFileError(
                f"{path}: its weights file {printable(location, 100)} has {size} bytes, the model uses "
                f"{end} of them: export the model again"
            )


def _inline(tensor: TensorProto, array: np.ndarray) -> TensorProto:
    if tensor.data_location == TensorProto.EXTERNAL:
        return numpy_helper.from_array(np.asarray(array), tensor.name)
    return tensor


def _without_initializers(model: onnx.ModelProto) -> onnx.ModelProto:
    skeleton = onnx.ModelProto()
    skeleton.ir_version = model.ir_version
    skeleton.opset_import.extend(model.opset_import)
    skeleton.functions.extend(model.functions)
    graph = model.graph
    skeleton.graph.name = graph.name
    for name in ("node", "input", "output", "value_info", "sparse_initializer"):
        getattr(skeleton.graph, name).extend(getattr(graph, name))
    return skeleton


def is_sequence(value: onnx.ValueInfoProto) -> bool:
    """Whether an input or output is a sequence of tensors of numbers."""
    element = value.type.sequence_type.elem_type
    return (
        value.type.WhichOneof("value") == "sequence_type"
        and element.WhichOneof("value") == "tensor_type"
        and element.tensor_type.elem_type not in (TensorProto.UNDEFINED, TensorProto.STRING)
    )


def _check_tensor(model_name: str, kind: str, value: onnx.ValueInfoProto) -> None:
    """Refuse what is neither a tensor of numbers nor a sequence of such tensors.

    Raises:
        ImportFailed: text or the like.
        ModelFileError: no type is declared.
    """
    if is_sequence(value):
        return
    what = value.type.WhichOneof("value")
    if what == "tensor_type":
        element = value.type.tensor_type.elem_type
        if element == TensorProto.UNDEFINED:
            raise ModelFileError(
                f"{model_name}: {kind} {value.name!r} declares no type: export the model again"
            )
        if element != TensorProto.STRING:
            return
    names = {
        "tensor_type": "text",
        "sequence_type": "a sequence of other things than tensors of numbers",
        "optional_type": "optional",
        "map_type": "a map",
    }
    found = names.get(str(what), "no tensor")
    raise ImportFailed(
        f"{model_name}: {kind} {value.name!r} is {found}; only tensors of numbers can enter and leave a model"
    )


def declared_input(value: onnx.ValueInfoProto) -> DeclaredInput:
    """An input that is a tensor, as the file declares it."""
    tensor = value.type.tensor_type
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
    if not tensor.HasField("shape"):
        return DeclaredInput(value.name, None, dtype)
    dimensions: list[int | str] = []
    for dimension in tensor.shape.dim:
        known = dimension.HasField("dim_value") and dimension.dim_value >= 0
        dimensions.append(dimension.dim_value if known else dimension.dim_param)
    return DeclaredInput(value.name, tuple(dimensions), dtype)


def write_pinned(source: Path, shapes: dict[str, tuple[int, ...]], target: Path) -> None:
    """Write a copy whose input shapes are numbers and whose weights are inside where a file can hold them."""
    model = onnx.load(source)
    for value in model.graph.input:
        if value.name in shapes:
            dimensions = value.type.tensor_type.shape
            del dimensions.dim[:]
            for size in shapes[value.name]:
                dimensions.dim.add().dim_value = size
    save(model, target)


def with_weights(model: onnx.ModelProto, weights: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """A copy of a graph with its large weights inside.

    Args:
        model: the graph; nodes of one layer may have its name.
        weights: large weights by name; those that the graph does not use are left out.
    """
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    used = {name for node in whole.graph.node for name in node.input}
    used.update(value.name for value in whole.graph.output)
    whole.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in weights.items() if name in used
    )
    return whole


def write_model(model: onnx.ModelProto, target: Path) -> None:
    """Write a model, with its weights beside it where the file cannot hold them.

    Args:
        model: loses the names of its nodes: a file may have each but once.
        target: the file.
    """
    for node in model.graph.node:
        node.name = ""
    save(model, target)


def save(model: onnx.ModelProto, target: Path) -> None:
    """Write a model as it is, with its weights beside it where the file cannot hold them."""
    total = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    if total < _PROTOBUF_LIMIT_BYTES:
        onnx.save(model, target)
    else:
        onnx.save(model, target, save_as_external_data=True, location=f"{target.name}.data")
