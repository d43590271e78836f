"""What a worker hands over is the model that it read, and what does not hold together is refused."""

from __future__ import annotations

import copy
import gc
import os
import resource
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import tvm
import tvm_ffi
from onnx import TensorProto, helper, numpy_helper
from tvm import relax
from tvm.script import tirx as T

from host.engines import reference
from host.errors import ModelFileError, ShapeError
from host.importers import load, load_here
from host.importers.worker import child, transfer
from host.importers.worker.arrays_file import read_arrays, take_arrays, write_arrays
from host.importers.worker.functions import others
from host.importers.worker.transfer import pack, pack_module, unpack, unpack_module
from host.model import ImportedModel
from host.places import cache_root

_LONG_S = 60.0


def _write(path: Path, external: bool = False) -> Path:
    """A model with an open dimension and a weight that is read twice."""
    weight = numpy_helper.from_array(np.arange(4096, dtype=np.float32).reshape(64, 64) / 4096, "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("MatMul", ["h", "w"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 64])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(model, path, save_as_external_data=external, location="weights.bin", size_threshold=0)
    return path


@pytest.mark.parametrize("external", [False, True])
def test_a_model_read_apart_is_the_model_read_here(external: bool, tmp_path: Path) -> None:
    path = _write(tmp_path / "net.onnx", external)
    notes: list[str] = []
    collected: list[bool] = []

    def note_collector() -> None:
        collected.append(gc.isenabled())

    apart = load(path, {"x": (3, 64)}, golden_cases=2, notice=notes.append, meanwhile=note_collector)
    assert (collected, gc.isenabled()) == ([False], True)
    here = load_here(path, {"x": (3, 64)}, golden_cases=2)
    assert apart.module is not None and here.module is not None
    assert tvm_ffi.structural_equal(apart.module, here.module, map_free_vars=True)
    assert (apart.signature, apart.content_hash, apart.name) == (here.signature, here.content_hash, here.name)
    assert apart.parameters == here.parameters == 64 * 64
    assert apart.path == here.path and apart.path.is_relative_to(cache_root()) and apart.path.is_file()
    for first, second in zip(apart.golden, here.golden, strict=True):
        for a, b in zip((*first.inputs, *first.outputs), (*second.inputs, *second.outputs), strict=True):
            np.testing.assert_array_equal(a, b)
    assert all("fewer guards" in note for note in notes)


def test_the_module_is_written_while_the_original_runtime_is_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not again afterwards: of a large model that takes as long as to convert it."""
    path, folder = _write(tmp_path / "net.onnx"), tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.chdir(folder)
    written, seen = threading.Event(), list[int]()
    run, write = reference._run_apart, transfer.pack_module

    def wait(*given: Any) -> None:
        assert written.wait(_LONG_S)
        run(*given)

    def noted(module: tvm.IRModule, place: Path) -> dict[str, Any]:
        answer = write(module, place)
        seen.append(len((place / "module.json").read_bytes()))
        written.set()
        return answer

    monkeypatch.setattr(reference, "_run_apart", wait)
    for user in (child, transfer):
        monkeypatch.setattr(user, "pack_module", noted)
    answer = child.read(str(path), {"x": [3, 64]}, 0, 1, None, "")
    assert len(seen) == 1
    here = load_here(path, {"x": (3, 64)}, golden_cases=1)
    assert here.module is not None
    made = unpack_module(answer["module"], folder)
    assert tvm_ffi.structural_equal(made, here.module, map_free_vars=True)


def test_samples_and_errors_go_there_and_back(tmp_path: Path) -> None:
    path = _write(tmp_path / "net.onnx")
    given = np.full((2, 64), 0.5, np.float32)
    model = load(path, {"x": (2, 64)}, samples=[[given]], half="float16")
    np.testing.assert_array_equal(model.golden[0].inputs[0], given)
    assert model.golden[0].spread > 0
    assert model.golden[0].shares == (None,)
    with pytest.raises(ShapeError, match="--shape x=N,64"):
        load(path)


def test_weights_outlive_those_of_the_next_module_of_the_same_worker(tmp_path: Path) -> None:
    """Ranges of lengths: constants of one length are mapped while the worker writes those of another."""
    made = []
    for size in (900, 300):
        weight = relax.const(np.arange(size, dtype=np.float32), "float32")
        builder = relax.BlockBuilder()
        with builder.function("main", []):
            builder.emit_func_output(builder.emit(relax.op.negative(weight)))
        made.append(unpack_module(pack_module(builder.get(), tmp_path), tmp_path))
    (found,) = (one.args[0].value.numpy() for one in _calls(made[0]))
    np.testing.assert_array_equal(found, np.arange(900, dtype=np.float32))


def test_weights_are_not_those_of_a_file_that_the_worker_may_cut_off(
    packed: tuple[dict[str, Any], Path, ImportedModel],
) -> None:
    answer, folder, model = packed
    module = unpack_module(answer["module"], folder)
    # To read a mapped page behind the end of its file would end this process.
    assert str(folder) not in Path("/proc/self/maps").read_text()
    for name in ("weights.bin", "module.json"):
        os.truncate(folder / name, 0)
    assert tvm_ffi.structural_equal(module, model.module, map_free_vars=True)
    with pytest.raises(ModelFileError, match="damaged"):
        unpack_module(answer["module"], folder)


@pytest.mark.parametrize("name", ["weights.bin", "module.json"])
@pytest.mark.parametrize("what", ["missing", "link", "folder", "pipe"])
def test_what_a_worker_put_in_the_place_of_its_files_is_not_followed(
    name: str, what: str, packed: tuple[dict[str, Any], Path, ImportedModel], tmp_path: Path
) -> None:
    answer, folder, _ = packed
    (folder / name).rename(tmp_path / "elsewhere")
    if what == "link":
        (folder / name).symlink_to(tmp_path / "elsewhere")
    elif what == "folder":
        (folder / name).mkdir()
    elif what == "pipe":
        os.mkfifo(folder / name)
    with pytest.raises(ModelFileError, match="damaged"):
        unpack_module(answer["module"], folder)


def test_many_arrays_need_one_descriptor(tmp_path: Path) -> None:
    index = write_arrays(tmp_path / "arrays", [np.full(300, number) for number in range(200)])
    kept = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(one.name) for one in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20, kept[1]))
    try:
        made = [*take_arrays(tmp_path / "arrays", index), *read_arrays(tmp_path / "arrays", index)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, kept)
    assert [int(one[0]) for one in made] == [*range(200), *range(200)]


def _calls(module: tvm.IRModule) -> list[Any]:
    found: list[Any] = []
    relax.analysis.post_order_visit(
        module["main"], lambda one: found.append(one) if isinstance(one, relax.Call) else None
    )
    return found


@pytest.fixture
def packed(tmp_path: Path) -> tuple[dict[str, Any], Path, ImportedModel]:
    folder = tmp_path / "scratch"
    folder.mkdir()
    model = load_here(_write(tmp_path / "net.onnx"), {"x": (2, 64)}, golden_cases=1)
    return pack(model, folder), folder, model


def test_weights_travel_beside_the_module_and_once(
    packed: tuple[dict[str, Any], Path, ImportedModel],
) -> None:
    answer, folder, _ = packed
    assert len(answer["module"]["weights"]) == 1
    assert (folder / "weights.bin").stat().st_size == 4096 * 4
    assert (folder / "module.json").stat().st_size < 4096 * 4


def _set(*keys: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(answer: dict[str, Any]) -> None:
        for key in keys[:-1]:
            answer = answer[key]
        answer[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("content_hash", value="../../x"),
        _set("path", value="/etc/passwd"),
        _set("path", value="net.onnx"),
        _set("format", value="other"),
        _set("inputs", value=[["x", [-1], "float32"]]),
        _set("golden", "arrays", 0, "offset", value=1 << 60),
        _set("golden", "arrays", 0, "shape", value=[1 << 40, 1 << 40]),
        _set("golden", "arrays", 0, "dtype", value="O"),
        _set("golden", "arrays", 0, "dtype", value="object"),
        _set("golden", "cases", value=[[1, 1]]),
        _set("module", "weights", value=None),
        _set("module", "weights", value=[]),
        _set("module", value={}),
        lambda answer: answer.clear(),
    ],
)
def test_an_answer_that_does_not_hold_together_is_refused(
    change: Callable[[dict[str, Any]], None],
    packed: tuple[dict[str, Any], Path, ImportedModel],
    tmp_path: Path,
) -> None:
    answer, folder, model = packed
    changed = copy.deepcopy(answer) | {"path": str(tmp_path / "net.onnx")}
    change(changed)
    with pytest.raises(ModelFileError, match="damaged"):
        unpack(changed, folder, tmp_path / "net.onnx")
    good = unpack(answer | {"path": str(tmp_path / "net.onnx")}, folder, tmp_path / "net.onnx")
    assert tvm_ffi.structural_equal(good.module, model.module, map_free_vars=True)


def test_arrays_of_all_kinds_travel(tmp_path: Path) -> None:
    arrays = [
        np.array(3.5),
        np.zeros((0, 4), np.int8),
        np.arange(12, dtype=np.uint16).reshape(3, 4).T,
        np.array([True, False]),
        np.array([1.5, 2.5], ml_dtypes.bfloat16),
    ]
    index = write_arrays(tmp_path / "arrays", arrays)
    for array, read in zip(arrays, read_arrays(tmp_path / "arrays", index), strict=True):
        assert read.dtype == array.dtype and read.shape == array.shape
        np.testing.assert_array_equal(np.array(read), array)


def _write_determinants(path: Path) -> Path:
    """A model with an operator that the importer writes as a function of loops."""
    graph = helper.make_graph(
        [helper.make_node("Det", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 2, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


def test_functions_of_loops_come_along(tmp_path: Path) -> None:
    path = _write_determinants(tmp_path / "net.onnx")
    apart, here = load(path), load_here(path)
    assert apart.module is not None and here.module is not None
    assert len(apart.module.functions) == 2
    assert tvm_ffi.structural_equal(apart.module, here.module, map_free_vars=True)


@pytest.mark.parametrize("what", ["call_extern", "packed", "main"])
def test_functions_that_reach_outside_of_their_tensors_are_refused(what: str, tmp_path: Path) -> None:
    @T.prim_func
    def extern(x: T.Buffer((4, 2, 2), "float32"), y: T.Buffer((4,), "float32")) -> None:
        for i in range(4):
            T.evaluate(T.call_extern("int32", "system", 0))
            y[i] = x[i, 0, 0]

    @T.prim_func
    def packed(x: T.Buffer((4, 2, 2), "float32"), y: T.Buffer((4,), "float32")) -> None:
        for i in range(4):
            T.evaluate(T.call_packed("runtime.SystemLib"))
            y[i] = x[i, 0, 0]

    model = load_here(_write_determinants(tmp_path / "net.onnx"), golden_cases=1)
    assert model.module is not None
    (name,) = others(model.module)
    changed = {**model.module.functions}
    if what == "main":
        changed[name] = model.module["main"]
    else:
        changed[name] = extern if what == "call_extern" else packed
    answer = pack(replace(model, module=tvm.IRModule(changed, attrs=model.module.attrs)), tmp_path)
    with pytest.raises(ModelFileError, match="damaged"):
        unpack(answer, tmp_path, model.path)
