"""Arithmetic of types that are computed with in a wider one: half precision in single precision.

The original runtimes compute such models in single precision too;
inputs and outputs keep their type. A conversion to float16 that is only converted back rounds.
"""

from __future__ import annotations

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value, constant, map_outputs
from host.lowering.rebuild import rebuild
from host.lowering.types import numeric_type


def _is_narrow(value: Value) -> bool:
    return numeric_type(value.dtype).compute != value.dtype


def widen_halves(graph: Graph) -> Graph:
    """A graph that computes in single precision wherever `graph` computes in half."""
    given = (*graph.inputs, *(value for node in graph.nodes for value in node.inputs))
    if not any(_is_narrow(value) for value in given):
        return graph
    single: dict[Value, Value] = {}
    readers = graph.consumers()

    def only_rounds(node: Node) -> bool:
        back = [one.op == "cast" and one.output.dtype == "float32" for one in readers.get(node.output, ())]
        # Of bfloat16, TVM leaves such a pair out.
        types = node.inputs[0].dtype, node.output.dtype
        return bool(back) and all(back) and types == ("float32", "float16")

    def widened(builder: Builder, value: Value) -> Value:
        if not _is_narrow(value):
            return value
        if value not in single:
            data, wide = value.data, numeric_type(value.dtype).compute
            single[value] = builder.cast(value, wide) if data is None else constant(data, wide)
        return single[value]

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        if node.template is not None or node.spec.reads_halves:
            # Its types are its own: it is given what it was given before.
            own = [builder.cast(new, old.dtype) for new, old in zip(inputs, node.inputs, strict=True)]
            return tuple(widened(builder, value) for value in builder.copy(node, own))
        inputs = tuple(widened(builder, value) for value in inputs)
        if node.op == "cast" and _is_narrow(node.output):
            rounded = builder.cast(inputs[0], node.output.dtype) if only_rounds(node) else inputs[0]
            return builder.cast(rounded, numeric_type(node.output.dtype).compute)
        specs = [(value.shape, numeric_type(value.dtype).compute) for value in node.outputs]
        return builder.emit(node.op, inputs, node.attrs, specs)

    wanted = [value.dtype for value in graph.output_values()]
    return _with_output_types(rebuild(graph, rule), wanted)


def _with_output_types(graph: Graph, wanted: list[str]) -> Graph:
    """The graph with outputs of the types that the model promises, in order."""
    builder = Builder(graph.operators)
    builder.nodes.extend(graph.nodes)
    types = iter(wanted)
    outputs = map_outputs(graph.outputs, lambda value: builder.cast(value, next(types)))
    return builder.graph(graph.inputs, outputs, graph.functions)
