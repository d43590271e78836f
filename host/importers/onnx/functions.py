"""Operators that the standard defines by a function body, replaced by that body."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import AttributeProto, FunctionProto, NodeProto, TypeProto, ValueInfoProto

from host.importers.onnx.control_flow.branches import rename_node


def has_body(operator: str, opset: int) -> bool:
    """Whether the standard defines an operator by a function."""
    try:
        schema = onnx.defs.get_schema(operator, opset, "")
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def expand(
    node: NodeProto, opset: int, types: Mapping[str, ValueInfoProto], prefix: str
) -> list[NodeProto] | None:
    """The nodes of the function that a node calls, with its arguments in place of the parameters.

    Args:
        node: of an operator that has a body.
        opset: version of the standard that the graph is written in.
        types: types of the graph's values, by name.
        prefix: put before names that the body defines.

    Returns:
        The nodes, or None if the body depends on a type that is not known.
    """
    body = _body(node, opset, types)
    if body is None:
        return None
    schema = onnx.defs.get_schema(node.op_type, opset, "")
    given = {entry.name: entry for entry in node.attribute}
    defaults = {
        name: entry.default_value
        for name, entry in schema.attributes.items()
        if entry.default_value.type != AttributeProto.UNDEFINED
    }
    attributes = defaults | given
    names = dict.fromkeys(name for inner in body.node for name in inner.output if name)
    rename = {name: prefix + name for name in names}
    rename |= dict(zip(body.input, [*node.input] + [""] * len(body.input), strict=False))
    rename |= {name: value for name, value in zip(body.output, node.output, strict=False) if value}
    nodes = []
    for inner in body.node:
        renamed = rename_node(inner, rename)
        _set_attributes(renamed, attributes)
        nodes.append(renamed)
    return nodes


def _body(node: NodeProto, opset: int, types: Mapping[str, ValueInfoProto]) -> FunctionProto | None:
    schema = onnx.defs.get_schema(node.op_type, opset, "")
    if schema.has_function:
        version = max((entry for entry in schema.function_opset_versions if entry <= opset), default=None)
        if version is None:
            return None
        return FunctionProto.FromString(schema.get_function_with_opset_version(version))
    version = max(
        (entry for entry in schema.context_dependent_function_opset_versions if entry <= opset), default=None
    )
    inputs = []
    for name in node.input:
        if name and name not in types:
            return None
        inputs.append((types[name].type if name else TypeProto()).SerializeToString())
    if version is None:
        return None
    built = schema.get_context_dependent_function_with_opset_version(
        version, node.SerializeToString(), inputs
    )
    return FunctionProto.FromString(built) if built else None


def _set_attributes(node: NodeProto, values: Mapping[str, AttributeProto]) -> None:
    """Put values in the place of references to the function's attributes, in subgraphs too."""
    kept = []
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name not in values:
                continue
            value = AttributeProto()
            value.CopyFrom(values[attribute.ref_attr_name])
            value.name = attribute.name
            kept.append(value)
            continue
        for graph in [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs:
            for inner in graph.node:
                _set_attributes(inner, values)
        kept.append(attribute)
    copies = [AttributeProto.FromString(attribute.SerializeToString()) for attribute in kept]
    del node.attribute[:]
    node.attribute.extend(copies)
