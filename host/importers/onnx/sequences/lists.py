"""Sequences inside of a graph: where their lengths are known, each is a list of names of tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from host.importers.onnx.evaluate import static_shape

# Tensors of one sequence; a longer one stays what it is, and the original runtime runs the model.
MAX_LENGTH = 1024
# Versions of the standard from which axes and splits are inputs.
_INPUTS = 13

Value = Callable[[str], np.ndarray | None]
Expansion = tuple[list[NodeProto], list[TensorProto]]


class SequenceLists:
    """The sequences that are known so far, in the order of a graph's nodes.

    Args:
        value: gives the value of a name if it is constant.
        types: types of the graph's values, by name.
        opset: version of the standard that the graph is written in.
    """

    def __init__(self, value: Value, types: Mapping[str, ValueInfoProto], opset: int) -> None:
        self._value, self._types, self._opset = value, types, opset
        self._lists: dict[str, list[str]] = {}

    def without_sequences(self, node: NodeProto) -> Expansion | None:
        """Nodes in the place of one that reads or makes a sequence of known length.

        A node that makes a sequence becomes one that constructs it of its tensors, so that the next nodes see
        what it consists of. It is unused when all its readers read the tensors.

        Args:
            node: the next node of the graph.

        Returns:
            Nodes and constants, or None if it is another node or nothing is known yet.
        """
        if node.domain not in ("", "ai.onnx"):
            return None
        if node.op_type in ("SequenceConstruct", "SequenceEmpty"):
            self._lists[node.output[0]] = list(node.input)
            return None
        if node.op_type == "SplitToSequence":
            return self._split(node)
        if not node.input or node.input[0] not in self._lists:
            return None
        known = self._lists[node.input[0]]
        if node.op_type in ("Identity", "SequenceInsert", "SequenceErase"):
            return self._changed(node, known)
        if node.op_type == "SequenceLength":
            return [], [numpy_helper.from_array(np.array(len(known), np.int64), node.output[0])]
        if node.op_type == "SequenceAt":
            place = self._place(node, 1, len(known))
            return None if place is None else ([_same(known[place], node.output[0])], [])
        if node.op_type == "ConcatFromSequence" and known:
            return self._concatenated(node, known)
        return None

    def _place(
        self, node: NodeProto, index: int, count: int, default: int | None = None, ends: bool = False
    ) -> int | None:
        """The place in a sequence that an input of a node gives, counted from the front.

        Args:
            node: has the place as an input.
            index: of this input.
            count: length of the sequence; negative places count from its end.
            default: where the input is left out.
            ends: whether the place behind the last element is one.

        Returns:
            None if it is not known, or not in the sequence.
        """
        if len(node.input) <= index or not node.input[index]:
            return default
        held = self._value(node.input[index])
        if held is None or held.size != 1:
            return None
        place = int(held.reshape(-1)[0])
        place += count if place < 0 else 0
        return place if 0 <= place < count + ends else None

    def _changed(self, node: NodeProto, known: list[str]) -> Expansion | None:
        made = list(known)
        if node.op_type == "SequenceInsert":
            place = self._place(node, 2, len(known), len(known), ends=True)
            if place is None:
                return None
            made.insert(place, node.input[1])
        elif node.op_type == "SequenceErase":
            erased = self._place(node, 1, len(known), len(known) - 1)
            if erased is None or not known:
                return None
            del made[erased]
        return self._constructed(made, node.output[0], node.input[0])

    def _constructed(self, tensors: list[str], name: str, like: str = "") -> Expansion | None:
        if len(tensors) > MAX_LENGTH:
            return None
        if tensors:
            made = helper.make_node("SequenceConstruct", tensors, [name])
        else:
            declared = self._types.get(like)
            element = declared.type.sequence_type.elem_type.tensor_type.elem_type if declared else 0
            made = helper.make_node("SequenceEmpty", [], [name], dtype=element or TensorProto.FLOAT)
        self._lists[name] = tensors
        return [made], []

    def _split(self, node: NodeProto) -> Expansion | None:
        shape = static_shape(self._types.get(node.input[0]))
        attributes = {entry.name: entry.i for entry in node.attribute}
        axis = attributes.get("axis", 0)
        if not shape or not -len(shape) <= axis < len(shape):
            return None
        sizes = self._sizes(node, shape[axis])
        if not sizes or len(sizes) > MAX_LENGTH or sum(sizes) != shape[axis] or min(sizes) < 0:
            return None
        name = node.output[0]
        parts = [f"{name}/element{number}" for number in range(len(sizes))]
        # Without sizes, each part has one element, and may lose the axis.
        flat = not attributes.get("keepdims", 1) and (len(node.input) < 2 or not node.input[1])
        split = [f"{part}/kept" for part in parts] if flat else parts
        nodes, tensors = self._with_numbers("Split", node.input[0], sizes, "split", split, axis=axis)
        for whole, part in zip(split, parts, strict=True):
            if flat:
                more = self._with_numbers("Squeeze", whole, [axis], "axes", [part])
                nodes, tensors = nodes + more[0], tensors + more[1]
        made = self._constructed(parts, name)
        assert made is not None
        return nodes + made[0], tensors

    def _sizes(self, node: NodeProto, whole: int) -> list[int] | None:
        """The sizes of the parts: given, or all alike with a smaller one at the end."""
        if len(node.input) < 2 or not node.input[1]:
            return [1] * whole if whole <= MAX_LENGTH else None
        held = self._value(node.input[1])
        if held is None or held.dtype.kind not in "iu":
            return None
        if held.ndim:
            return [int(size) for size in held.reshape(-1)]
        size = int(held)
        if size < 1 or whole > size * MAX_LENGTH:
            return None
        return [min(size, whole - begin) for begin in range(0, whole, size)]

    def _concatenated(self, node: NodeProto, known: list[str]) -> Expansion:
        attributes = {entry.name: entry.i for entry in node.attribute}
        axis = attributes.get("axis", 0)
        nodes: list[NodeProto] = []
        tensors: list[TensorProto] = []
        parts = known
        if attributes.get("new_axis", 0):
            parts = [f"{node.output[0]}/element{number}" for number in range(len(known))]
            for whole, part in zip(known, parts, strict=True):
                more = self._with_numbers("Unsqueeze", whole, [axis], "axes", [part])
                nodes, tensors = nodes + more[0], tensors + more[1]
        return [*nodes, helper.make_node("Concat", parts, list(node.output), axis=axis)], tensors

    def _with_numbers(
        self,
        operator: str,
        given: str,
        numbers: Sequence[int],
        name: str,
        outputs: list[str],
        **attributes: int,
    ) -> Expansion:
        """A node with numbers that were an attribute, and are an input in newer versions of the standard."""
        if self._opset < _INPUTS:
            return [helper.make_node(operator, [given], outputs, **{name: list(numbers)}, **attributes)], []
        held = f"{outputs[0]}/{name}"
        tensor = numpy_helper.from_array(np.array(numbers, np.int64), held)
        return [helper.make_node(operator, [given, held], outputs, **attributes)], [tensor]


def _same(given: str, name: str) -> NodeProto:
    return helper.make_node("Identity", [given], [name])
