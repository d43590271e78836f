"""ONNX models of a few nodes, compiled and run in guarded memory in a child, which a kernel may end."""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from host.compile.device_profile import target_profile
from host.compile.static_model import build, lower_model, propose
from host.importers import load_here
from host.progress import Silence, StageClock
from tests.memory_check.execution import GuardedModel, results_of, workspaces_on_the_heap


class KernelFault(AssertionError):
    """A kernel touched what is not its own, or its process ended."""


def save(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, np.ndarray],
    outputs: Mapping[str, tuple[np.dtype, tuple[int, ...]]],
    opset: int,
) -> Path:
    """Write a model whose inputs are those of arrays.

    Args:
        path: of the file.
        nodes: in order.
        inputs: by name.
        outputs: type and shape of each, by name.
        opset: version of the standard operators.
    """
    given = [_declared(name, array.dtype, array.shape) for name, array in inputs.items()]
    made = [_declared(name, *kind) for name, kind in outputs.items()]
    graph = helper.make_graph(list(nodes), "few", given, made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    path.write_bytes(model.SerializeToString())
    return path


def _declared(name: str, dtype: np.dtype, shape: tuple[int, ...]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


def outputs_in_a_child(
    path: Path,
    inputs: Sequence[np.ndarray],
    samples: Sequence[np.ndarray],
    expected: Sequence[np.ndarray],
    kernel: str = "",
) -> list[np.ndarray]:
    """The outputs of a model for one set of inputs, by Gensor's programs for a processor with AVX2.

    Args:
        path: of the model.
        inputs: that the kernels are given.
        samples: inputs that the importer is given for its own run.
        expected: outputs that the importer is given for them.
        kernel: part of the name of one that there has to be; "" for any.

    Raises:
        KernelFault: a kernel read or wrote what is not its own, or what nobody had written.
    """
    model = load_here(path, samples=[samples], reference=lambda engine, file, cases: [list(expected)])
    assert model.module is not None, f"{model.operator}: {model.reason}"
    clock, profile = StageClock(Silence()), target_profile("x86_64-v3", 1)
    lowered = lower_model(model, profile, clock)
    assert any(kernel in task.name for task in lowered.tasks), f"no kernel {kernel}: {lowered.sites}"
    library = path.with_suffix(".so")
    with workspaces_on_the_heap():
        made = build(lowered, profile, propose(lowered, profile, 0, clock), library, clock)
    answer = path.with_suffix(".npz")
    pid = os.fork()
    if pid == 0:
        _answer(made, results_of(lowered), inputs, answer)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        raise KernelFault(f"a kernel ended its process with {code}")
    with np.load(answer) as arrays:
        if arrays["faults"].size:
            raise KernelFault("; ".join(arrays["faults"].tolist()))
        return [arrays[f"y{index}"] for index in range(len(arrays.files) - 1)]


def _answer(made: Any, results: Mapping[str, int], inputs: Sequence[np.ndarray], answer: Path) -> None:
    code = 1
    try:
        guarded = GuardedModel(made.library, results, made.parameters)
        found = {f"y{index}": array for index, array in enumerate(guarded.run(inputs))}
        np.savez(answer, faults=np.array(guarded.faults, np.str_), **found)
        code = 0
    except BaseException:  # noqa: BLE001 - a forked child has nobody above to show it
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)
