"""Large weights of an ONNX file stay pages of it: nothing copies them on the way to the lowering."""

from __future__ import annotations

import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
import tvm
from onnx import helper, numpy_helper
from tvm import relax

from host.errors import ModelFileError
from host.importers.onnx.mapped_weights import LARGE_BYTES, split_file
from host.importers.onnx.model_file import read_onnx
from host.importers.worker.ahead import files_of
from host.importers.worker.arrays_file import read_arrays, write_arrays
from host.importers.worker.transfer import pack_module, unpack_module
from tests.unit.importers.harness import graph, value

ROWS = LARGE_BYTES // 4 // 64
X = np.zeros((2, ROWS), np.float32)
LARGE = np.random.default_rng(0).normal(size=(ROWS, 64)).astype(np.float32)
SMALL = np.arange(64, dtype=np.float32)


def written(path: Path, **weights: np.ndarray) -> Path:
    """A model with a product of a large weight, and further weights that nothing reads."""
    nodes = [
        helper.make_node("MatMul", ["x", "large"], ["z"]),
        helper.make_node("Add", ["z", "small"], ["y"]),
    ]
    every = {"small": SMALL, "large": LARGE, **weights}
    model = graph(nodes, {"x": X}, [value("y", X, (2, 64))], every)
    path.write_bytes(model.SerializeToString())
    return path


def test_large_weights_are_pages_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path / "m.onnx")
    split = split_file(path)
    # What protobuf gets, and copies twice, is the rest.
    assert len(split.skeleton) < path.stat().st_size - LARGE.nbytes + 100
    assert len(split.raw) == 1
    file = read_onnx(path)
    np.testing.assert_array_equal(file.weights["large"], LARGE)
    assert not file.weights["large"].flags.owndata and not file.weights["large"].flags.writeable
    position = path.read_bytes().index(LARGE.tobytes())
    assert list(split.raw.values()) == [(position, position + LARGE.nbytes)]


def test_the_rest_of_a_file_is_as_it_was(tmp_path: Path) -> None:
    path = written(tmp_path / "m.onnx")
    whole, rest = onnx.load(path), onnx.ModelProto.FromString(split_file(path).skeleton)
    for tensor in whole.graph.initializer:
        if tensor.name == "large":
            tensor.ClearField("raw_data")
    assert rest == whole


@pytest.mark.parametrize("dtype", ["int64", "bool", "float16", "uint8", "float64"])
def test_weights_of_every_type_are_read(dtype: str, tmp_path: Path) -> None:
    other = (np.arange(2 * LARGE_BYTES) % 2).astype(dtype)
    np.testing.assert_array_equal(
        read_onnx(written(tmp_path / "m.onnx", other=other)).weights["other"], other
    )


def test_types_that_numpy_packs_otherwise_are_read(tmp_path: Path) -> None:
    path = written(tmp_path / "m.onnx")
    model = onnx.load(path)
    other = np.arange(LARGE_BYTES).astype(ml_dtypes.bfloat16)
    model.graph.initializer.append(numpy_helper.from_array(other, "other"))
    path.write_bytes(model.SerializeToString())
    np.testing.assert_array_equal(read_onnx(path).weights["other"], other)


def test_a_weight_with_too_few_bytes_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "m.onnx")
    model = onnx.load(path)
    large = next(tensor for tensor in model.graph.initializer if tensor.name == "large")
    large.dims[0] += 1
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelFileError, match="weight 'large' cannot be read"):
        read_onnx(path)
    large.raw_data = large.raw_data + b"\0"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelFileError, match="no whole number of elements"):
        read_onnx(path)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "m.onnx")
    content = path.read_bytes()
    for length in (len(content) - 1, len(content) // 2, 100):
        path.write_bytes(content[:length])
        with pytest.raises(ModelFileError, match="truncated"):
            read_onnx(path)


def test_two_graphs_in_a_file_are_one(tmp_path: Path) -> None:
    """protobuf merges what occurs twice: the initialisers of the second follow those of the first."""
    path = written(tmp_path / "m.onnx")
    second = onnx.ModelProto()
    second.graph.initializer.append(numpy_helper.from_array(LARGE + 1, "second"))
    path.write_bytes(path.read_bytes() + second.SerializePartialToString())
    weights = read_onnx(path).weights
    np.testing.assert_array_equal(weights["large"], LARGE)
    np.testing.assert_array_equal(weights["second"], LARGE + 1)


def test_weights_of_an_import_are_pages_of_a_file_that_no_other_process_has(tmp_path: Path) -> None:
    x = relax.Var("x", relax.TensorType(X.shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            made = builder.emit_output(relax.op.matmul(x, relax.const(LARGE)))
        builder.emit_func_output(made)
    module = unpack_module(pack_module(builder.get(), tmp_path), tmp_path)
    constants: list[tvm.runtime.Tensor] = []

    def visit(node: object) -> None:
        if isinstance(node, tvm.ir.GenericConst) and isinstance(node.value, tvm.runtime.Tensor):
            constants.append(node.value)

    relax.analysis.post_order_visit(module["main"].body, visit)
    (weight,) = constants
    np.testing.assert_array_equal(weight.numpy(), LARGE)
    address = np.from_dlpack(weight).ctypes.data
    # A copy of the worker's, without a name: not memory of this process, which cannot be given back.
    place = mapped_at(address)
    assert tempfile.gettempdir() in place and place.endswith("(deleted)")
    assert str(tmp_path / "weights.bin") not in place


def mapped_at(address: int) -> str:
    """The line of this process's maps that an address lies in."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(part, 16) for part in line.split()[0].split("-"))
        if begin <= address < end:
            return line
    return ""


def test_mapped_arrays_cannot_change_the_file(tmp_path: Path) -> None:
    index = write_arrays(tmp_path / "arrays", [SMALL])
    (array,) = read_arrays(tmp_path / "arrays", index)
    array[0] = 7.0
    np.testing.assert_array_equal(read_arrays(tmp_path / "arrays", index)[0], SMALL)


def test_files_beside_a_model_are_not_looked_for_among_its_numbers(tmp_path: Path) -> None:
    name = "beside.bin"
    letters = np.frombuffer(name.encode() + bytes(6), np.uint8)
    path = written(tmp_path / "m.onnx", other=np.resize(letters, 2 * LARGE_BYTES))
    (tmp_path / name).write_bytes(b"x")
    assert name.encode() in path.read_bytes()
    assert files_of(path) == [path]
