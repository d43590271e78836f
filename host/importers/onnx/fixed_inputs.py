"""Inputs that the user fixes: `--value` gives their numbers, and the model that is compiled has constants.

A shape that depends on the values of an input is known then, and what follows from it is computed once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from device_agent.contract.tensors import numpy_type
from device_agent.contract.text import printable
from host.errors import ShapeError
from host.importers.golden import Reference
from host.importers.onnx.model_file import LARGE_ELEMENTS, OnnxFile, save
from host.importers.pins import DeclaredInput

# Numbers that one option may list, and elements of an input that it may fill.
_MOST_NUMBERS, _MOST_ELEMENTS = 4096, 1 << 24
# The version of the format from which a constant need not be listed as an input.
_OWN_CONSTANTS = 4

Values = Mapping[str, Sequence[float]]


def check_names(model_name: str, declared: Sequence[DeclaredInput], values: Values) -> None:
    """Refuse values of what is no input.

    Raises:
        ShapeError: with the inputs that there are.
    """
    names = [entry.name for entry in declared]
    for name in values:
        if name not in names:
            raise ShapeError(
                f"{model_name}: --value names {printable(name, 80)!r}, but the inputs are "
                f"{printable(', '.join(names), 200) or 'none'}"
            )


def with_lengths(
    declared: Sequence[DeclaredInput], shapes: Mapping[str, Sequence[int]], values: Values
) -> dict[str, Sequence[int]]:
    """The given shapes, with those of fixed inputs whose length is the number of their values.

    Args:
        declared: the model's inputs.
        shapes: by input name, or one size by the name of a symbol; these win.
        values: numbers by input name.
    """
    made = dict(shapes)
    for entry in declared:
        sizes = entry.dimensions
        open_row = sizes is None or (len(sizes) == 1 and isinstance(sizes[0], str) and sizes[0] not in shapes)
        if entry.name in values and entry.name not in shapes and open_row:
            made[entry.name] = (len(values[entry.name]),)
    return made


def fixed_arrays(
    model_name: str,
    declared: Sequence[DeclaredInput],
    pinned: Mapping[str, tuple[int, ...]],
    values: Values,
) -> dict[str, np.ndarray]:
    """The arrays of the fixed inputs, by name.

    Args:
        model_name: for messages.
        declared: the model's inputs.
        pinned: shapes of all inputs.
        values: numbers by input name, in the order of memory; one number fills its input.

    Raises:
        ShapeError: too many numbers, another number of them than the input has elements, or one that its
            type cannot hold.
    """
    types = {entry.name: entry.dtype for entry in declared}
    return {
        name: _array(f"{model_name}: --value {printable(name, 80)}", pinned[name], types[name], numbers)
        for name, numbers in values.items()
    }


def _array(option: str, shape: tuple[int, ...], dtype: str, numbers: Sequence[float]) -> np.ndarray:
    elements = math.prod(shape)
    sizes = " x ".join(map(str, shape)) or "one number"
    if elements > _MOST_ELEMENTS or len(numbers) > _MOST_NUMBERS:
        raise ShapeError(
            f"{option}: at most {_MOST_NUMBERS} numbers fix an input of at most {_MOST_ELEMENTS} elements: "
            "leave it an input"
        )
    if len(numbers) not in (1, elements):
        raise ShapeError(
            f"{option} gives {len(numbers)} numbers, the input has {elements} ({sizes}): give one or all"
        )
    for number in numbers:
        _check_number(option, dtype, number)
    row = np.array(list(numbers), dtype=object).astype(numpy_type(dtype))
    return np.array(np.broadcast_to(row, (elements,)) if len(numbers) == 1 else row).reshape(shape)


def _check_number(option: str, dtype: str, number: float) -> None:
    """Refuse a number that a type cannot hold."""
    text = printable(number, 40)
    kind = numpy_type(dtype).kind
    if kind == "b":
        if number not in (0, 1):
            raise ShapeError(f"{option}: {text} is neither true nor false")
    elif kind in "iu":
        limits = np.iinfo(numpy_type(dtype))
        if not math.isfinite(number) or number != int(number) or not limits.min <= number <= limits.max:
            raise ShapeError(f"{option}: {text} is no number of type {dtype}: give whole numbers within it")
    else:
        with np.errstate(over="ignore"):
            held = float(np.array(float(number)).astype(numpy_type(dtype)))
        if math.isnan(held) or (math.isinf(held) and not math.isinf(number)):
            raise ShapeError(f"{option}: {text} is no number of type {dtype}: give numbers within it")


def with_constants(file: OnnxFile, arrays: Mapping[str, np.ndarray]) -> OnnxFile:
    """A file whose fixed inputs are constants of its graph.

    Args:
        file: as read; it is not changed.
        arrays: of the fixed inputs, by name.
    """
    model = onnx.ModelProto()
    model.CopyFrom(file.model)
    small = {name: array for name, array in arrays.items() if array.size <= LARGE_ELEMENTS}
    _fix(model, arrays, small)
    weights = {name: array for name, array in arrays.items() if name not in small}
    inputs = tuple(entry for entry in file.inputs if entry.name not in arrays)
    return replace(file, model=model, weights={**file.weights, **weights}, inputs=inputs)


def write_fixed(source: Path, arrays: Mapping[str, np.ndarray], target: Path) -> None:
    """Write a copy whose fixed inputs are constants.

    Args:
        source: an ONNX file.
        arrays: of the fixed inputs, by name.
        target: the copy.
    """
    model = onnx.load(source)
    _fix(model, arrays, arrays)
    save(model, target)


def _fix(model: onnx.ModelProto, arrays: Mapping[str, np.ndarray], inside: Mapping[str, np.ndarray]) -> None:
    """Take the fixed inputs away, and put those arrays into the graph that are to be `inside`."""
    kept = [value for value in model.graph.input if value.name not in arrays]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in inside.items())
    model.ir_version = max(model.ir_version, _OWN_CONSTANTS)


def feeding(
    reference: Reference, original: Path, declared: Sequence[DeclaredInput], arrays: Mapping[str, np.ndarray]
) -> Reference:
    """Runs the original file with the fixed inputs fed, whatever file it is asked to run.

    Golden outputs are those of the model as it was before its inputs became constants, so that the
    verification covers this step too.

    Args:
        reference: runs a file in an engine.
        original: the file that has all inputs.
        declared: all inputs, in order.
        arrays: of the fixed inputs, by name.
    """

    def run(engine: str, path: Path, inputs: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
        whole = []
        for case in inputs:
            given = iter(case)
            whole.append([arrays[one.name] if one.name in arrays else next(given) for one in declared])
        return reference(engine, original, whole)

    return run


def hint(reason: str, declared: Sequence[DeclaredInput]) -> str:
    """A reason why a model has no module, with the option that may help."""
    small = [
        entry.name
        for entry in declared
        if "int" in entry.dtype and entry.dimensions is not None and len(entry.dimensions) <= 1
    ]
    if not reason.endswith("depends on the model's inputs") or not small:
        return reason
    return f"{reason}; --value {printable(small[0], 80)}=N,... fixes an input while compiling"
