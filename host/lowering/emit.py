"""Writes the graph as relax: `main` calls the fused functions and takes the constants as parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax

from host.errors import LoweringError
from host.lowering.expressions.tvm_legalisation import NotOneExpressionError, bound_call
from host.lowering.functions import FunctionTable
from host.lowering.fusion import Group
from host.lowering.graph import Graph, Value, map_outputs
from host.lowering.halves import halves
from host.lowering.passes.halves.choose_types import values_in_single
from host.lowering.tasks import call_graph
from host.model import CallGraph, Layer
from host.tensor_ir.processor import for_cpu

# Calls that the virtual machine's own passes lower.
_LEFT_TO_THE_MACHINE = frozenset(
    f"relax.{name}" for name in ("call_tir", "call_dps_packed", "call_pure_packed", "reshape")
)

_SORTS_AND_SCANS = tuple(f"relax.{name}" for name in ("argsort", "cumprod", "cumsum", "sort", "topk"))


def emit(
    graph: Graph,
    groups: list[Group],
    target: tvm.target.Target,
    half: str = "",
    any_length: bool = False,
    types: Mapping[Layer, int] | None = None,
    *,
    between: bool = True,
) -> tuple[tvm.IRModule, tuple[np.ndarray, ...], CallGraph]:
    """The relax module of a fused graph, the values of its parameters behind the inputs, and its calls.

    Reshapes stay relax operators: the virtual machine turns them into views.

    Args:
        graph: to write.
        groups: its nodes by function.
        target: what it is for.
        half: type of half precision in which tensors lie in memory, where they may; "" for single precision.
        any_length: whether the functions are to serve other lengths of a dimension too.
        types: numeric types that a plan decided, by layer; what products in single precision read stays so.
        between: whether tensors between functions may be halves too.

    Raises:
        LoweringError: an operator that neither we nor TVM can write as a function.
    """
    on_gpu = target.kind.name == "cuda"
    table = FunctionTable(any_length=any_length, on_gpu=on_gpu)
    steps = [_step(group, table) for group in groups]
    if half:
        # Which functions there are decides what may be halves.
        single = values_in_single(groups, types or {})
        if not between:
            single |= {value for node in graph.nodes for value in node.outputs}
        stored = halves(graph, steps, half, on_gpu, single)
        table = FunctionTable(stored, any_length, on_gpu)
        steps = [_step(group, table) for group in groups]
    parameters = _parameters(graph, steps)
    writer = _Writer(graph, table, parameters)
    module = writer.write(steps, [group.layers for group in groups])
    if any(isinstance(step, Group) and not step.is_view for step in steps):
        module = _legalised(module, target)
    known = [value.data for value in parameters if value.data is not None]
    kinds = [table.stored_type(value) for value in parameters]
    values = tuple(data.astype(dtype, copy=False) for data, dtype in zip(known, kinds, strict=True))
    return module, values, call_graph(module, writer.layers, len(graph.inputs))


def _legalised(module: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """The module with TVM's own functions for the operators that are left."""
    if target.kind.name == "cuda":
        with target:
            module = relax.transform.LegalizeOps(skip_ops=["relax.reshape", *_SORTS_AND_SCANS])(module)
        module = _with_sorts_on_cpu(module, target.host)
    else:
        with target:
            module = relax.backend.DispatchSortScan()(module)
            module = relax.transform.LegalizeOps(skip_ops=["relax.reshape"])(module)
    left: list[str] = []

    def visit(expression: Any) -> None:
        if isinstance(expression, relax.Call) and isinstance(expression.op, tvm.ir.Op):
            left.append(expression.op.name)

    relax.analysis.post_order_visit(module["main"].body, visit)
    for name in left:
        if name not in _LEFT_TO_THE_MACHINE:
            operator = name.removeprefix("relax.")
            raise LoweringError(
                f"Operator {operator} has no function on this target; deploy with --backend onnxruntime."
            )
    return module


def _with_sorts_on_cpu(module: tvm.IRModule, host: tvm.target.Target) -> tvm.IRModule:
    """The module with sorts and sums along an axis as functions of the CPU.

    TVM's own functions of these for a GPU do not compile (0.27).
    """
    before = {variable.name_hint for variable in module.functions}
    with host:
        module = relax.backend.DispatchSortScan()(module)
        module = relax.transform.LegalizeOps(skip_ops=["relax.reshape"])(module)
    functions = {
        variable: for_cpu(function)
        if isinstance(function, tvm.tirx.PrimFunc) and variable.name_hint not in before
        else function
        for variable, function in module.functions.items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)


def _step(group: Group, table: FunctionTable) -> Any:
    """A call of a function, or the group itself if it stays a relax operator."""
    if group.is_view or group.nodes[0].op == "relax.call_tir":
        return group
    try:
        return table.call(group)
    except NotOneExpressionError:
        return group


def _parameters(graph: Graph, steps: list[Any]) -> list[Value]:
    """Constants that are read at run time, in order of first use."""
    found: dict[Value, None] = {}
    for step in steps:
        read = step.nodes[0].inputs if isinstance(step, Group) else step.arguments
        found.update(dict.fromkeys(value for value in read if value.is_constant))
    found.update(dict.fromkeys(value for value in graph.output_values() if value.is_constant))
    return list(found)


class _Writer:
    """Builds the relax module.

    Attributes:
        layers: what a variable is computed for, by its name.
    """

    def __init__(self, graph: Graph, table: FunctionTable, parameters: list[Value]) -> None:
        self.graph = graph
        self.table = table
        self.builder = relax.BlockBuilder()
        self.variables: dict[Value, Any] = {}
        self.layers: dict[str, tuple[Layer, ...]] = {}
        for value in graph.inputs:
            self.variables[value] = relax.Var(value.name, relax.TensorType(value.shape, value.dtype))
        for index, value in enumerate(parameters):
            self.variables[value] = relax.Var(
                f"p{index}", relax.TensorType(value.shape, table.stored_type(value))
            )
        self.global_vars = {
            name: self.builder.add_func(function, name) for name, function in table.functions.items()
        }

    def write(self, steps: list[Any], layers: list[tuple[Layer, ...]]) -> tvm.IRModule:
        """The relax module of the graph, with the functions that its steps call, each for its layers."""
        parameters = list(self.variables.values())
        with self.builder.function("main", parameters, attrs={"num_input": len(self.graph.inputs)}):
            with self.builder.dataflow():
                for step, those in zip(steps, layers, strict=True):
                    variable = self.operator(step) if isinstance(step, Group) else self.call(step)
                    self.layers[variable.name] = those
                outputs = map_outputs(self.graph.outputs, lambda value: self.variables[value])
                result = self.builder.emit_output(_expression(outputs))
            self.builder.emit_func_output(result)
        return self.builder.get()

    def call(self, step: Any) -> relax.Var:
        """A call of a fused function."""
        types = [relax.TensorType(value.shape, self.table.stored_type(value)) for value in step.results]
        arguments = [self.variables[value] for value in step.arguments]
        call = relax.call_tir(self.global_vars[step.name], arguments, types if len(types) > 1 else types[0])
        return self.bind(step.results, self.builder.emit(call), len(types) > 1)

    def operator(self, group: Group) -> relax.Var:
        """An operator that stays one: a view, a function of the importer, or one for TVM to legalise."""
        node = group.nodes[0]
        if node.op == "reshape":
            source = self.variables[node.inputs[0]]
            self.variables[node.output] = self.builder.emit(relax.op.reshape(source, node.output.shape))
            return self.variables[node.output]
        call, variables = bound_call(node)
        binding = {v: self.variables[value] for v, value in zip(variables, node.inputs, strict=True)}
        call = _substitute(call, binding)
        if node.op == "relax.call_tir":
            name = call.args[0].name_hint
            if name not in self.global_vars:
                self.global_vars[name] = self.builder.add_func(self.graph.functions[name], name)
            call = relax.Call(call.op, [self.global_vars[name], *call.args[1:]], call.attrs, call.ty_args)
        is_tuple = node.attrs["tuple"]
        return self.bind(node.outputs, self.builder.emit(call), is_tuple)

    def bind(self, results: tuple[Value, ...], variable: relax.Var, is_tuple: bool) -> relax.Var:
        """Remember which relax variable holds which value."""
        if not is_tuple:
            self.variables[results[0]] = variable
            return variable
        for index, value in enumerate(results):
            self.variables[value] = self.builder.emit(relax.TupleGetItem(variable, index))
        return variable


def _substitute(expression: Any, binding: dict[Any, Any]) -> Any:
    if isinstance(expression, relax.Call):
        arguments = [_substitute(argument, binding) for argument in expression.args]
        return relax.Call(expression.op, arguments, expression.attrs, expression.ty_args)
    if isinstance(expression, relax.Tuple):
        return relax.Tuple([_substitute(field, binding) for field in expression.fields])
    return binding.get(expression, expression) if isinstance(expression, relax.Var) else expression


def _expression(outputs: Any) -> Any:
    if isinstance(outputs, tuple):
        return relax.Tuple([_expression(part) for part in outputs])
    return outputs
