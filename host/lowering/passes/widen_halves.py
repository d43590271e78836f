"""Arithmetic of types that are computed with in a wider one: half precision in single precision.

The original runtimes compute such models in single precision too;
inputs and outputs keep their type. A number that is converted to a half rounds where that shows: before it is
converted to another type, compared or put in order, or rounded to a whole number.
"""

from __future__ import annotations

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value, constant, map_outputs
from host.lowering.rebuild import rebuild
from host.lowering.types import ROUNDED, numeric_type

# What gives no numbers but those that it reads, their opposites and constants: to round what is read or what
# is given comes to the same.
_CHOICES = frozenset(
    {
        *("broadcast", "concat", "dilate", "interleave", "pad", "pad_repeated", "permute", "reshape"),
        *("slice", "take", "transpose"),
        *("abs", "clip", "maximum", "minimum", "negative", "relu", "where"),
        *("max", "min", "pool"),
    }
)
# Operations whose result may be far off where an operand is not rounded.
_STEPS = frozenset(
    {
        *("argmax", "argmin", "first_in_order", "isfinite", "isinf", "sign"),
        *("equal", "greater", "greater_equal", "less", "less_equal", "not_equal"),
        *("ceil", "floor", "floor_divide", "floor_mod", "mod", "round", "trunc"),
    }
)


def _is_narrow(value: Value) -> bool:
    return numeric_type(value.dtype).compute != value.dtype


def widen_halves(graph: Graph) -> Graph:
    """A graph that computes in single precision wherever `graph` computes in half."""
    given = (*graph.inputs, *(value for node in graph.nodes for value in node.inputs))
    if not any(_is_narrow(value) for value in given):
        return graph
    single: dict[Value, Value] = {}

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
        inputs = tuple(
            _rounded(builder, widened(builder, new), old.dtype)
            if _shows_rounding(node, old)
            else widened(builder, new)
            for new, old in zip(inputs, node.inputs, strict=True)
        )
        if node.op == "cast" and _is_narrow(node.output):
            return builder.cast(inputs[0], numeric_type(node.output.dtype).compute)
        specs = [(value.shape, numeric_type(value.dtype).compute) for value in node.outputs]
        return builder.emit(node.op, inputs, node.attrs, specs)

    wanted = [value.dtype for value in graph.output_values()]
    return _with_output_types(rebuild(graph, rule), wanted)


def _shows_rounding(node: Node, value: Value) -> bool:
    """Whether a node tells a number that was rounded to a half from one that was not."""
    if not _is_narrow(value) or (
        node.op not in _STEPS and (node.op != "cast" or node.output.dtype == value.dtype)
    ):
        return False
    seen, left = {value}, [value]
    while left:
        made = left.pop().producer
        if made is not None and made.op == "cast" and not _holds(made.inputs[0].dtype):
            return True
        if made is not None and made.op in _CHOICES:
            left.extend(one for one in made.inputs if one not in seen and _is_narrow(one))
            seen.update(made.inputs)
    return False


def _holds(dtype: str) -> bool:
    """Whether a half has all numbers of a type."""
    return dtype in ("bool", "int8", "uint8")


def _rounded(builder: Builder, value: Value, half: str) -> Value:
    return builder.unary(ROUNDED[half], value)


def _with_output_types(graph: Graph, wanted: list[str]) -> Graph:
    """The graph with outputs of the types that the model promises, in order."""
    builder = Builder(graph.operators)
    builder.nodes.extend(graph.nodes)
    types = iter(wanted)
    outputs = map_outputs(graph.outputs, lambda value: builder.cast(value, next(types)))
    return builder.graph(graph.inputs, outputs, graph.functions)
