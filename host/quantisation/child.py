"""What the worker of a quantisation does: functions that take and return plain data. See `parent`.

Files of the scratch folder, which is the working folder, carry everything from call to call.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from device_agent.contract.quiet import import_quietly
from host.errors import EngineError, ModelFileError, UserError
from host.importers.onnx.model_file import read_onnx, write_pinned
from host.importers.pins import pin
from host.importers.worker.arrays_file import read_arrays, write_arrays
from host.model import TensorSpec
from host.model.quantisation import OutputError
from host.quantisation.graph import (
    ACTIVATIONS,
    PASSED,
    Layer,
    add_weights,
    is_quantised,
    layers_of,
    name_nodes,
    only_quantised,
)
from host.quantisation.output_error import output_errors
from host.quantisation.samples import read_samples

onnxruntime = import_quietly("onnxruntime")
quantization = import_quietly("onnxruntime.quantization")

# Samples that candidates are compared with the model in floats over, and those for what a layer loses alone.
COMPARED, ALONE = 32, 8
GOLDEN = 3
# Scales per channel came with this version of the operators.
_OPSET = 13
# Both models are one protobuf each, which holds 2 GB.
_MODEL_BYTES = 1_500_000_000
_OUTPUT_BYTES = 1 << 30
FLOATS, RESULT = "float.onnx", "quantised.onnx"
_PREPARED, _FULL, _STATE = "prepared.onnx", "full.onnx", "state.json"


def prepare(path: str, shapes: dict[str, list[int]], calibration: str, activations: str) -> dict[str, Any]:
    """Read a model and its samples, and quantise every layer.

    Args:
        path: of the model, absolute.
        shapes: by input name.
        calibration: of the samples, absolute.
        activations: type of activations, "uint8" or "int8".

    Raises:
        UserError: the model cannot be quantised, or the samples do not fit.
        EngineError: ONNX Runtime cannot run the model.
    """
    logging.disable(logging.WARNING)  # the quantiser advises what is done here anyway
    file = read_onnx(Path(path))
    if sum(one.stat().st_size for one in file.files) > _MODEL_BYTES:
        raise UserError(f"{file.name}: models of over {_MODEL_BYTES / 1e9:.1f} GB are not quantised here")
    pinned = pin(file.name, file.inputs, shapes)
    specs = [TensorSpec(entry.name, pinned[entry.name], entry.dtype) for entry in file.inputs]
    samples = read_samples(Path(calibration), specs)
    write_pinned(Path(path), pinned, Path(FLOATS))
    model = _prepared(file.name)
    layers = layers_of(model)
    if not layers:
        raise UserError(
            f"{file.name} has no convolution and no product with constant weights in float32: leave "
            "--quantize out"
        )
    state = {
        "layers": [asdict(layer) for layer in layers],
        "names": [spec.name for spec in specs],
        "outputs": [value.name for value in model.graph.output],
        "samples": [write_arrays(Path(f"sample-{n}.bin"), arrays) for n, arrays in enumerate(samples)],
    }
    Path(_STATE).write_text(json.dumps(state))
    _reference(state)
    _quantise_all(model, layers, state, activations)
    full = onnx.load("all.onnx")
    add_weights(full, model, layers)
    onnx.save(full, _FULL)
    return {
        "samples": len(samples),
        "compared": len(_chosen(len(samples), COMPARED)),
        "bytes": Path(_FULL).stat().st_size,
        "layers": [[one.name, one.operator, one.multiply_adds, one.weights] for one in layers],
    }


def measure(quantised: list[int], alone: bool) -> list[dict[str, Any]]:
    """Errors of the outputs with some layers quantised.

    Args:
        quantised: indices of the layers.
        alone: whether a few of the samples are enough.
    """
    return _errors(_candidate(_state(), quantised), ALONE if alone else COMPARED)


def finish(quantised: list[int]) -> dict[str, Any]:
    """Write the model with some layers quantised.

    Args:
        quantised: indices of the layers.

    Returns:
        The errors of its outputs, and those with every layer quantised; samples for golden cases.
    """
    state = _state()
    chosen = _candidate(state, quantised)
    Path(RESULT).write_bytes(chosen)
    full = _candidate(state, list(range(len(state["layers"]))))
    cases = [_sample(state, index) for index in _chosen(len(state["samples"]), GOLDEN)]
    return {
        "errors": _errors(chosen, COMPARED),
        "fully": _errors(full, COMPARED),
        "golden": write_arrays(Path("golden.bin"), [array for case in cases for array in case]),
    }


def _prepared(name: str) -> onnx.ModelProto:
    """The model as the quantiser needs it: constants folded, normalisation in the weights, shapes known.

    Raises:
        UserError: it is quantised already.
        ModelFileError: its operators cannot be brought to a version with scales per channel.
        EngineError: ONNX Runtime cannot load it.
    """
    model = onnx.load(FLOATS)
    if is_quantised(model):
        raise UserError(f"{name} is quantised already: leave --quantize out")
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in constants]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    if any(entry.domain in ("", "ai.onnx") and entry.version < _OPSET for entry in model.opset_import):
        try:
            model = onnx.version_converter.convert_version(model, _OPSET)
        except Exception as error:  # the converter raises what its C++ code does
            raise ModelFileError(
                f"{name}: its operators are older than version {_OPSET}, which quantising needs, and cannot "
                f"be converted: export it with opset_version={_OPSET} or newer"
            ) from error
    name_nodes(model)
    onnx.save(model, FLOATS)
    options = _session_options()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = _PREPARED
    _opened(FLOATS, options)
    made = onnx.shape_inference.infer_shapes(onnx.load(_PREPARED))
    name_nodes(made)
    onnx.save(made, _PREPARED)
    return made


# ONNX Runtime has no types.
class _Reader(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
    """The samples, one after the other."""

    def __init__(self, state: dict[str, Any]) -> None:
        self._state, self._next = state, 0

    def get_next(self) -> dict[str, np.ndarray] | None:
        """The next sample; None after the last."""
        if self._next == len(self._state["samples"]):
            return None
        self._next += 1
        return _feed(self._state, self._next - 1)


def _quantise_all(
    model: onnx.ModelProto, layers: Sequence[Layer], state: dict[str, Any], activations: str
) -> None:
    """Write the model with every layer quantised: static, with pairs, weights per channel."""
    kinds = {layer.operator for layer in layers} | {*ACTIVATIONS, *PASSED}
    around = [node.name for node in model.graph.node if node.op_type in (*ACTIVATIONS, *PASSED)]
    try:
        quantization.quantize_static(
            _PREPARED,
            "all.onnx",
            _Reader(state),
            quant_format=quantization.QuantFormat.QDQ,
            op_types_to_quantize=sorted(kinds),
            nodes_to_quantize=[*(layer.name for layer in layers), *around],
            per_channel=True,
            activation_type=quantization.QuantType.QUInt8
            if activations == "uint8"
            else quantization.QuantType.QInt8,
            weight_type=quantization.QuantType.QInt8,
            # Which bounds are implied by a range is decided when it is known what stays quantised.
            extra_options={"QDQKeepRemovableActivations": True},
        )
    except (ValueError, TypeError, KeyError, IndexError, RuntimeError) as error:
        raise UserError(f"ONNX Runtime cannot quantise the model ({error}): leave --quantize out") from error


def _reference(state: dict[str, Any]) -> None:
    """Write the outputs of the model in floats."""
    written = 0
    session = _opened(FLOATS)
    for index in _chosen(len(state["samples"]), COMPARED):
        outputs = _run(session, _feed(state, index))
        written += sum(array.nbytes for array in outputs)
        if written > _OUTPUT_BYTES:
            raise UserError("--calibration: the outputs of its samples are over 1 GB: give fewer samples")
        described = write_arrays(Path(f"output-{index}.bin"), outputs)
        Path(f"output-{index}.json").write_text(json.dumps(described))


def _candidate(state: dict[str, Any], quantised: Sequence[int]) -> bytes:
    """The model with some layers quantised, as a file."""
    layers = [Layer(**{**one, "inputs": tuple(one["inputs"])}) for one in state["layers"]]
    model = onnx.load(_FULL)
    only_quantised(model, layers, {layers[index].name for index in quantised})
    return bytes(model.SerializeToString())


def _errors(model: bytes, most: int) -> list[dict[str, Any]]:
    state = _state()
    session = _opened(model)
    chosen = _chosen(len(state["samples"]), most)
    values = [_run(session, _feed(state, index)) for index in chosen]
    references = [
        read_arrays(Path(f"output-{index}.bin"), json.loads(Path(f"output-{index}.json").read_text()))
        for index in chosen
    ]
    return [_plain(one) for one in output_errors(state["outputs"], references, values)]


def _plain(error: OutputError) -> dict[str, Any]:
    """The value for JSON, which cannot express infinity: an infinite error is None."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in asdict(error).items()
    }


def _chosen(count: int, most: int) -> list[int]:
    """Indices of at most so many samples, evenly spread; those of fewer samples are among those of more."""
    among = range(count) if count <= COMPARED else [index * count // COMPARED for index in range(COMPARED)]
    return [among[index * len(among) // most] for index in range(most)] if len(among) > most else list(among)


def _state() -> dict[str, Any]:
    state: dict[str, Any] = json.loads(Path(_STATE).read_text())
    return state


def _sample(state: dict[str, Any], index: int) -> list[np.ndarray]:
    return read_arrays(Path(f"sample-{index}.bin"), state["samples"][index])


def _feed(state: dict[str, Any], index: int) -> dict[str, np.ndarray]:
    return dict(zip(state["names"], map(np.asarray, _sample(state, index)), strict=True))


def _session_options() -> Any:
    options = onnxruntime.SessionOptions()
    # Sums are added in the same order on every machine.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return options


def _opened(model: str | bytes, options: Any = None) -> Any:
    """A session with exact products of bytes, where ONNX Runtime can write the graph for them.

    Raises:
        EngineError: it cannot load the model.
    """
    attempts = [options] if options is not None else [_session_options(), _session_options()]
    if options is None:
        attempts[0].add_session_config_entry("session.x64quantprecision", "1")
    for number, one in enumerate(attempts):
        try:
            return onnxruntime.InferenceSession(model, one, providers=["CPUExecutionProvider"])
        except (
            Exception
        ) as error:  # ONNX Runtime raises a dozen of its own classes, which have no public base
            if number == len(attempts) - 1:
                raise EngineError(f"ONNX Runtime cannot load the model: {error}") from error
    raise AssertionError


def _run(session: Any, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    try:
        outputs = session.run(None, feed)
    except Exception as error:  # see _opened
        raise EngineError(f"ONNX Runtime cannot run the model on a sample: {error}") from error
    return [np.asarray(one) for one in outputs]
