"""The parts that importers of all formats share: hashes, signatures, and checks of the imported module."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tvm
from tvm import relax

from device_agent.contract.limits import LIMITS
from host.engines import engine_for_format
from host.errors import ImportFailed
from host.files import file_hash
from host.importers.bounds import check_shape
from host.importers.golden import GoldenOptions, make_golden
from host.importers.normalise import normalise
from host.importers.random_inputs import InputRange
from host.model import GoldenCase, ImportedModel, Signature, TensorSpec
from host.places import cache_root

# Above this, golden outputs and the module are made one after the other.
_LARGE_BYTES = 128 << 20


def content_hash(
    files: Sequence[Path], shapes: Mapping[str, Sequence[int]], fixed: Mapping[str, np.ndarray] | None = None
) -> str:
    """SHA-256 over the files' bytes, the pinned shapes and the arrays of fixed inputs."""
    digest = hashlib.sha256(json.dumps({name: list(shape) for name, shape in shapes.items()}).encode())
    for name, array in sorted((fixed or {}).items()):
        digest.update(f"{name}\0{array.dtype.name}\0".encode() + array.tobytes())
    for file in files:
        digest.update(bytes.fromhex(file_hash(file)))
    return digest.hexdigest()


def work_file(digest: str, name: str) -> Path:
    """The path of a pinned copy of a model: in the user's cache, by content."""
    directory = cache_root() / "models" / digest[:24]
    directory.mkdir(parents=True, exist_ok=True)
    return directory / name


def output_specs(names: Sequence[str], golden: Sequence[GoldenCase]) -> tuple[TensorSpec, ...]:
    """Outputs as the original runtime made them.

    Raises:
        ImportFailed: an output is a sequence or another thing that is not a tensor of numbers.
    """
    for name, value in zip(names, golden[0].outputs, strict=True):
        if not isinstance(value, np.ndarray) or value.dtype.kind in "OSU":
            raise ImportFailed(
                f"output {name!r} is not a tensor of numbers, and only those can leave a model"
            )
    return tuple(
        TensorSpec(name, value.shape, value.dtype.name)
        for name, value in zip(names, golden[0].outputs, strict=True)
    )


@dataclass(frozen=True, eq=False)
class Source:
    """A model file, ready to be run by its original runtime and to be converted.

    Attributes:
        name: file name without suffix.
        format: "onnx", "pt2" or "tflite".
        path: the file that the runtime gets.
        inputs: what it takes.
        output_names: what it gives.
        content_hash: of the model and its shapes.
        parameters: numbers that the file has for its weights.
    """

    name: str
    format: str
    path: Path
    inputs: tuple[TensorSpec, ...]
    output_names: tuple[str, ...]
    content_hash: str
    parameters: int


def assemble(
    source: Source, ranges: Sequence[InputRange], build: Callable[[], tvm.IRModule], options: GoldenOptions
) -> ImportedModel:
    """Make golden outputs and the relax module, and check one against the other.

    The runtime works in a process of its own; small models are converted meanwhile, large ones after it, so
    that their weights are not in memory three times.

    Args:
        source: the model.
        ranges: values that its inputs may take.
        build: makes the module; it raises ImportFailed if it cannot.
        options: of the golden cases, and what is done with the module meanwhile.

    Raises:
        EngineError: the original runtime cannot run the model.
        ImportFailed: an output is not a tensor of numbers.
    """
    for spec in source.inputs:
        check_shape(source.path.name, f"input {spec.name!r}", spec.shape, LIMITS.model.computed_elements)
    engine = engine_for_format(source.format).name
    built: Future[tvm.IRModule] = Future()
    with ThreadPoolExecutor(1) as executor:
        waiting = executor.submit(make_golden, engine, source.path, ranges, options)
        if source.path.stat().st_size > _LARGE_BYTES:
            wait([waiting])
        if not waiting.done() or waiting.exception() is None:
            try:
                built.set_result(normalise(build()))
            except ImportFailed as error:
                built.set_exception(error)
            else:
                options.meanwhile(built.result())
        golden = waiting.result()
    signature = Signature(source.inputs, output_specs(source.output_names, golden))
    module, reason, operator = None, "", None
    try:
        made = built.result()
        check_interface(made, signature)
        module = made
    except ImportFailed as error:
        reason, operator = str(error), error.operator
    return ImportedModel(
        source.name,
        source.format,
        source.path,
        signature,
        module,
        golden,
        source.content_hash,
        reason,
        operator,
        parameters=source.parameters,
    )


def check_interface(module: tvm.IRModule, signature: Signature) -> None:
    """Refuse a module whose interface is not the model's.

    Raises:
        ImportFailed: another number, shape or type of inputs or outputs than the original runtime has.
    """
    function = module["main"]
    result = function.ret_ty
    outputs = list(result.fields) if isinstance(result, relax.TupleType) else [result]
    for kind, made, wanted in (
        ("input", [parameter.ty for parameter in function.params], signature.inputs),
        ("output", outputs, signature.outputs),
    ):
        if len(made) != len(wanted):
            raise ImportFailed(f"the conversion has {len(made)} {kind}s where the model has {len(wanted)}")
        for have, spec in zip(made, wanted, strict=True):
            text = describe_type(have)
            if text != f"{spec.dtype}{list(spec.shape)}":
                expected = f"{spec.dtype}{list(spec.shape)}"
                raise ImportFailed(f"the conversion makes {kind} {spec.name!r} {text}, the model {expected}")


def describe_type(value: relax.Type) -> str:
    """A tensor type as `float32[1, 3]`; sizes that are not numbers appear as expressions."""
    if not isinstance(value, relax.TensorType) or value.shape is None:
        return str(value)
    sizes = ", ".join(str(getattr(size, "value", size)) for size in value.shape.values)
    return f"{value.dtype}[{sizes}]"
