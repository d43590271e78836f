"""Sequences among the inputs and outputs of a model: a copy of the file has a tensor for each element.

The copy is the model from there on: the original runtime runs it too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ValueInfoProto, helper, numpy_helper

from device_agent.contract.text import printable
from host.errors import ImportFailed, ShapeError
from host.importers.assemble import content_hash, work_file
from host.importers.onnx.control_flow.branches import rename_node
from host.importers.onnx.fixed_inputs import (
    Values,
    check_names,
    fixed_arrays,
    with_constants,
    with_lengths,
)
from host.importers.onnx.model_file import OnnxFile, declared_input, is_sequence, save
from host.importers.onnx.sequences.lists import MAX_LENGTH
from host.importers.onnx.simplify import simplify
from host.importers.pins import pin

Shapes = Mapping[str, Sequence[int]]


def with_tensors(
    path: Path, files: Sequence[Path], shapes: Shapes, values: Values, supported: Collection[str]
) -> Path:
    """A copy of a file whose sequences are tensors: element 2 of the sequence `boxes` is `boxes.2`.

    Args:
        path: the file, which has such an input or output.
        files: the file, and those of its weights.
        shapes: given by the user; those of `boxes.0`, `boxes.1` ... say how long the input `boxes` is.
        values: numbers of the inputs that are fixed, by name; the copy still has these inputs.
        supported: see `simplify`.

    Raises:
        ShapeError: no shapes are given for an input that is a sequence, a dimension stays open, or a shape or
            a value does not fit.
        ImportFailed: the length of an output depends on the values of other inputs.
    """
    fixed = {name: np.array(numbers, np.float64) for name, numbers in values.items()}
    target = work_file(content_hash(files, shapes, fixed), path.name)
    if target.is_file():
        return target
    model = onnx.load(path)
    _split_inputs(path.name, model.graph, shapes)
    if any(map(is_sequence, model.graph.output)):
        _split_outputs(path.name, model.graph, _lengths(path.name, model, shapes, values, supported))
    partial = target.with_name(f"partial-{target.name}")
    save(model, partial)
    partial.rename(target)
    return target


def _make_room(graph: onnx.GraphProto, names: Collection[str]) -> None:
    """Rename what the graph computes under names that inputs and outputs get: some exporters number alike."""
    made = {name for node in graph.node for name in node.output}
    made |= {tensor.name for tensor in graph.initializer}
    rename = {name: f"{name}/inside" for name in names if name in made}
    if rename:
        _replace(graph.node, [rename_node(node, rename) for node in graph.node])
        for tensor in graph.initializer:
            tensor.name = rename.get(tensor.name, tensor.name)


def _split_inputs(name: str, graph: onnx.GraphProto, shapes: Shapes) -> None:
    inputs: list[ValueInfoProto] = []
    made = []
    for value in graph.input:
        if not is_sequence(value):
            inputs.append(value)
            continue
        count = _length(name, value.name, shapes)
        element = value.type.sequence_type.elem_type.tensor_type.elem_type
        names = [f"{value.name}.{number}" for number in range(count)]
        _make_room(graph, names)
        inputs += [helper.make_tensor_value_info(one, element, list(shapes[one])) for one in names]
        made.append(helper.make_node("SequenceConstruct", names, [value.name]))
    nodes = [*made, *graph.node]
    _replace(graph.node, nodes)
    _replace(graph.input, inputs)


def _length(model_name: str, name: str, shapes: Shapes) -> int:
    """How many elements of a sequence have a shape."""
    count = 0
    while count < MAX_LENGTH and f"{name}.{count}" in shapes:
        count += 1
    if count:
        return count
    shown = printable(name, 80)
    raise ShapeError(
        f"{model_name}: input {shown!r} is a sequence: give the shape of each of its tensors, "
        f"--shape {shown}.0=... --shape {shown}.1=..."
    )


def _split_outputs(name: str, graph: onnx.GraphProto, lengths: Mapping[str, int]) -> None:
    outputs: list[ValueInfoProto] = []
    for value in graph.output:
        if not is_sequence(value):
            outputs.append(value)
            continue
        if value.name not in lengths:
            raise ImportFailed(
                f"{name}: output {printable(value.name, 80)!r} is a sequence whose length depends on the "
                "values of inputs: fix them with --value, or export the model with tensors as its outputs"
            )
        element = value.type.sequence_type.elem_type.tensor_type.elem_type
        names = [f"{value.name}.{number}" for number in range(lengths[value.name])]
        _make_room(graph, names)
        for number, one in enumerate(names):
            place = f"{one}/place"
            graph.initializer.append(numpy_helper.from_array(np.array(number, np.int64), place))
            graph.node.append(helper.make_node("SequenceAt", [value.name, place], [one]))
            outputs.append(helper.make_tensor_value_info(one, element, None))
    if not outputs:
        raise ImportFailed(f"{name}: its only output is an empty sequence")
    _replace(graph.output, outputs)


def _lengths(
    name: str, model: onnx.ModelProto, shapes: Shapes, values: Values, supported: Collection[str]
) -> dict[str, int]:
    """Lengths of the sequences that the simplified graph constructs, by name."""
    constants = {tensor.name for tensor in model.graph.initializer}
    skeleton = onnx.ModelProto()
    skeleton.CopyFrom(model)
    listed = [value for value in skeleton.graph.input if value.name not in constants]
    _replace(skeleton.graph.input, listed)
    declared = tuple(declared_input(value) for value in listed)
    check_names(name, declared, values)
    pinned = pin(name, declared, with_lengths(declared, shapes, values))
    file = OnnxFile(name, skeleton, {}, declared, external=False)
    file = with_constants(file, fixed_arrays(name, declared, pinned, values))
    simple = simplify(file, pinned, supported)
    return {
        node.output[0]: len(node.input)
        for node in simple.graph.node
        if node.op_type in ("SequenceConstruct", "SequenceEmpty")
    }


def _replace(field: Any, values: Sequence[Any]) -> None:
    """Put other messages into a repeated field, which may hold some of them."""
    copies = [type(value).FromString(value.SerializeToString()) for value in values]
    del field[:]
    field.extend(copies)
