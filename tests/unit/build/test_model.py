from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, s_tir, tirx

from host.build import KernelCache, VariantLinker, build_model
from host.build.default_schedule import default_schedule
from host.build.kernel import compile_kernel
from host.build.model import lower_to_executable
from host.errors import BuildError
from host.lowering import lower
from host.model import LoweredModel, Signature, TensorSpec
from tests import tiny_decoder
from tests.unit.lowering.harness import board

HIDDEN = "fused_matmul_add_relu"


def perceptron(target: tvm.target.Target) -> LoweredModel:
    """Two layers, a reshape between them and two outputs."""
    rng = np.random.default_rng(0)
    shapes = {"x": (3, 20), "w1": (20, 32), "b1": (32,), "w2": (96, 5), "b2": (5,)}
    arguments = [relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in shapes.items()]
    x, w1, b1, w2, b2 = arguments
    builder = relax.BlockBuilder()
    with builder.function("main", arguments):
        with builder.dataflow():
            hidden = builder.emit(relax.op.nn.relu(relax.op.add(relax.op.matmul(x, w1), b1)))
            flat = builder.emit(relax.op.reshape(hidden, (1, 96)))
            logits = builder.emit(relax.op.add(relax.op.matmul(flat, w2), b2))
            output = builder.emit_output((logits, hidden))
        builder.emit_func_output(output)
    with target:
        module = relax.get_pipeline("zero")(builder.get())
    return LoweredModel(
        "perceptron",
        Signature(
            (TensorSpec("x", (3, 20), "float32"),),
            (TensorSpec("logits", (1, 5), "float32"), TensorSpec("hidden", (3, 32), "float32")),
        ),
        module,
        tuple(rng.standard_normal(shape).astype("float32") for shape in list(shapes.values())[1:]),
        (),
        target,
    )


# What an app on a board does: no compiler, no tvm package, only the runtime library.
RUNTIME = """
import ctypes, importlib.util, pathlib, sys
import numpy as np
import tvm_ffi
folder = pathlib.Path(importlib.util.find_spec("tvm").origin).parent
ctypes.CDLL(str(folder / "lib" / "libtvm_runtime.so"), ctypes.RTLD_GLOBAL)
executable = tvm_ffi.load_module(sys.argv[1])["vm_load_executable"]()
executable["vm_initialization"](1, 0, 2)
arrays = np.load(sys.argv[2])
outputs = executable["main"](*(tvm_ffi.from_dlpack(arrays[name]) for name in arrays.files))
np.savez(sys.argv[3], *(np.from_dlpack(output) for output in outputs))
try:
    executable["main"](*(tvm_ffi.from_dlpack(np.ascontiguousarray(arrays[name].T)) for name in arrays.files))
except Exception as error:
    assert "shape" in str(error), error
else:
    raise AssertionError("a wrong shape was accepted")
assert "tvm" not in sys.modules
assert "libtvm_compiler" not in pathlib.Path("/proc/self/maps").read_text()
"""


def run_with_runtime_alone(model: LoweredModel, library: Path, x: np.ndarray) -> list[np.ndarray]:
    inputs, outputs = library.with_suffix(".in.npz"), library.with_suffix(".out.npz")
    np.savez(inputs, x, *model.parameters)
    command = [sys.executable, "-c", RUNTIME, str(library), str(inputs), str(outputs)]
    subprocess.run(command, check=True, timeout=120)
    with np.load(outputs) as arrays:
        return [arrays[name] for name in arrays.files]


def test_library_runs_where_only_the_runtime_is(
    tmp_path: Path, target: tvm.target.Target, cache: KernelCache
) -> None:
    model = perceptron(target)
    seen: list[tuple[int, int, str]] = []
    stats = build_model(model, {}, tmp_path / "lib.so", lambda *step: seen.append(step), cache=cache)
    x = np.random.default_rng(1).standard_normal((3, 20)).astype("float32")
    logits, hidden = run_with_runtime_alone(model, tmp_path / "lib.so", x)
    w1, b1, w2, b2 = model.parameters
    expected = np.maximum(x @ w1 + b1, 0)
    np.testing.assert_allclose(hidden, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(logits, expected.reshape(1, 96) @ w2 + b2, rtol=1e-4, atol=1e-4)
    # The reshape is a view: two kernels are all there is.
    assert stats.kernels == stats.compiled == len(stats.defaulted) == 2
    assert stats.library_bytes == (tmp_path / "lib.so").stat().st_size
    assert [done for done, _, _ in seen] == [1, 2] and seen[-1][:2] == (2, 2)
    assert sorted(name for _, _, name in seen) == list(stats.defaulted)
    again = build_model(model, {}, tmp_path / "again.so", cache=cache)
    assert (again.compiled, again.cached) == (0, 2)


def test_a_given_kernel_that_becomes_a_view_is_not_compiled(
    tmp_path: Path, target: tvm.target.Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = perceptron(target)
    given = {
        variable.name_hint: default_schedule(function)
        for variable, function in model.module.functions.items()
        if isinstance(function, tirx.PrimFunc)
    }
    compiled: list[str] = []

    def noted(function: tirx.PrimFunc, name: str, *rest: Any) -> Any:
        compiled.append(name)
        return compile_kernel(function, name, *rest)

    monkeypatch.setattr("host.build.model.compile_kernel", noted)
    stats = build_model(model, given, tmp_path / "lib.so")
    assert len(given) == 3 and stats.kernels == 2 and not stats.defaulted
    assert len(compiled) == 2 and HIDDEN in compiled


def test_given_schedules_are_used(tmp_path: Path, target: tvm.target.Target) -> None:
    model = perceptron(target)
    schedule = s_tir.Schedule(model.module[HIDDEN])
    block = schedule.get_sblock("matmul")
    schedule.vectorize(schedule.split(schedule.get_loops(block)[1], [None, 4])[1])
    stats = build_model(model, {HIDDEN: schedule.mod["main"]}, tmp_path / "lib.so")
    assert HIDDEN not in stats.defaulted
    assert not stats.refused
    x = np.ones((3, 20), "float32")
    hidden = run_with_runtime_alone(model, tmp_path / "lib.so", x)[1]
    w1, b1 = model.parameters[:2]
    np.testing.assert_allclose(hidden, np.maximum(x @ w1 + b1, 0), rtol=1e-5, atol=1e-5)


def test_a_schedule_that_does_not_compile_is_replaced_and_named(
    tmp_path: Path, target: tvm.target.Target
) -> None:
    model = perceptron(target)
    schedule = s_tir.Schedule(model.module[HIDDEN])
    schedule.bind(schedule.get_loops(schedule.get_sblock("matmul"))[0], "threadIdx.x")
    stats = build_model(model, {HIDDEN: schedule.mod["main"]}, tmp_path / "lib.so")
    assert list(stats.refused) == [HIDDEN]
    assert HIDDEN in stats.defaulted
    assert len(run_with_runtime_alone(model, tmp_path / "lib.so", np.ones((3, 20), "float32"))) == 2


def test_threads_and_one_thread_give_the_same_library(tmp_path: Path, target: tvm.target.Target) -> None:
    model = perceptron(target)
    contents = []
    for workers in (1, 4):
        path = tmp_path / f"lib{workers}.so"
        build_model(model, {}, path, workers=workers)
        contents.append(path.read_bytes())
    assert contents[0] == contents[1]


def test_buffers_are_planned(target: tvm.target.Target) -> None:
    """A chain of twenty operators lives in one block, of the size of two of its tensors, and its output."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((8, 64), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for number in range(20):
                value = builder.emit(relax.op.add(value, relax.const(float(number + 1))))
            value = builder.emit_output(value)
        builder.emit_func_output(value)
    executable, functions, planned, _ = lower_to_executable(builder.get(), target)
    # Beside it are functions that make its tensors for many calls, and take them.
    main = executable["as_text"]().partition("@main:")[2].partition("@")[0]
    assert main.count("call  vm.builtin.alloc_storage") == 2
    assert functions
    assert planned == 2 * 8 * 64 * 4


def test_progress_can_interrupt(tmp_path: Path, target: tvm.target.Target) -> None:
    def stop(done: int, total: int, name: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_model(perceptron(target), {}, tmp_path / "lib.so", stop)
    assert not list(tmp_path.iterdir())


def test_graph_that_does_not_compile_is_a_build_error(target: tvm.target.Target) -> None:
    functions = perceptron(target).module.functions
    kept = {name: function for name, function in functions.items() if name.name_hint != HIDDEN}
    with pytest.raises(BuildError, match="graph does not compile") as caught:
        lower_to_executable(tvm.IRModule(kept), target)
    assert "\n" not in str(caught.value)


def test_variants_are_measured_with_the_kernels_of_one_run(tmp_path: Path, cache: KernelCache) -> None:
    linker = VariantLinker(lower(tiny_decoder.imported(), board()), {}, tmp_path, cache)
    # The kernel that only the second entry calls is in the library, and does not run.
    assert linker.kernels == {"step", "score"}


def test_kernels_may_be_scheduled_while_others_are_compiled(
    tmp_path: Path, target: tvm.target.Target
) -> None:
    """Pairs of names and functions, one of which the model does not call, give the same as a mapping."""
    model = perceptron(target)
    functions = model.module.functions.items()
    known = {name.name_hint for name, one in functions if isinstance(one, tirx.PrimFunc)}
    [view] = known - set(lower_to_executable(model.module, target).functions)
    given = {view: model.module[view], HIDDEN: s_tir.Schedule(model.module[HIDDEN]).mod["main"]}
    stats = [
        build_model(model, kernels, tmp_path / f"{number}.so")
        for number, kernels in enumerate((given, iter(given.items())))
    ]
    assert (tmp_path / "0.so").read_bytes() == (tmp_path / "1.so").read_bytes()
    assert stats[0].kernels == stats[1].kernels == 2
    assert stats[0].defaulted == stats[1].defaulted == (*(known - {view, HIDDEN}),)
