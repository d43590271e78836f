"""Process that runs a model in one engine: reads inputs from one file, writes outputs to another.

`python -m host.engines.worker ENGINE MODEL CASES THREADS INPUTS OUTPUTS ERROR`
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Runner = Callable[[Sequence[np.ndarray]], list[np.ndarray]]


def _onnxruntime(path: str, threads: int) -> Runner:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # The reference is what the graph says, not what a faster rewriting of it computes.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]

    def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [np.asarray(value) for value in session.run(None, dict(zip(names, arrays, strict=True)))]

    return run


def _torch(path: str, threads: int) -> Runner:
    import torch
    from torch.utils import _pytree

    torch.set_num_threads(threads)
    program = torch.export.load(path)
    module = program.module()
    arguments = [
        spec.arg
        for spec in program.graph_signature.input_specs
        if spec.kind is torch.export.graph_signature.InputKind.USER_INPUT
    ]

    def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        tensors = iter(torch.from_numpy(np.require(array, requirements="CW")) for array in arrays)
        flat = [argument.value if hasattr(argument, "value") else next(tensors) for argument in arguments]
        positional, keywords = _pytree.tree_unflatten(flat, program.call_spec.in_spec)
        with torch.no_grad():
            result = module(*positional, **keywords)
        return [np.asarray(value) for value in _pytree.tree_leaves(result)]

    return run


def _litert(path: str, threads: int) -> Runner:
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        from tflite_runtime.interpreter import Interpreter

    interpreter = Interpreter(model_path=path, num_threads=threads)
    interpreter.allocate_tensors()
    inputs: list[dict[str, Any]] = interpreter.get_input_details()
    outputs: list[dict[str, Any]] = interpreter.get_output_details()

    def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        for detail, array in zip(inputs, arrays, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        return [np.array(interpreter.get_tensor(detail["index"])) for detail in outputs]

    return run


def _openvino(path: str, threads: int) -> Runner:
    import openvino

    model = openvino.Core().compile_model(path, "CPU", {"INFERENCE_NUM_THREADS": threads})

    def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        result = model(list(arrays))
        return [np.array(result[output]) for output in model.outputs]

    return run


_LOADERS: dict[str, Callable[[str, int], Runner]] = {
    "onnxruntime": _onnxruntime,
    "torch": _torch,
    "litert": _litert,
    "openvino": _openvino,
}


def main(arguments: Sequence[str]) -> int:
    """Run every case; on failure write one line about it and return 1."""
    engine, model, cases, threads, inputs_file, outputs_file, error_file = arguments
    results: dict[str, np.ndarray] = {}
    counts: list[int] = []
    try:
        run = _LOADERS[engine](model, int(threads))
        with np.load(inputs_file) as archive:
            for case in range(int(cases)):
                count = sum(name.startswith(f"{case}/") for name in archive.files)
                outputs = run([archive[f"{case}/{index}"] for index in range(count)])
                counts.append(len(outputs))
                results |= {f"{case}/{index}": array for index, array in enumerate(outputs)}
        for name, array in results.items():
            if array.dtype.kind not in "fiub":
                raise TypeError(f"output {name.split('/')[1]} has values of type {array.dtype}, not numbers")
    except Exception as error:  # noqa: BLE001 - whatever an engine raises becomes the message
        first_line = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        Path(error_file).write_text(json.dumps({"message": first_line.strip()[:400]}))
        return 1
    np.savez(outputs_file, counts=np.array(counts), **results)  # type: ignore[arg-type]
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
