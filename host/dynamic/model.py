"""A model over a length: lowered at a few lengths, and what differs between them as formulas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import isqrt
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from host.dynamic.formula import UNITS, Formula
from host.dynamic.own_length import over_own_length, own_length, passing_length, takes_length
from host.dynamic.request import Dimension
from host.dynamic.source import Source
from host.dynamic.template import Template, numbers_of, unify
from host.errors import LoweringError
from host.lowering import lower
from host.model import CallGraph, ImportedModel, Layer, LoweredModel, Signature
from host.tensor_ir.structural import mapped
from targets import Board

# Lengths that a model is lowered at: enough for a parabola and one to check it.
_WITNESSES = 4
# Below this, lowering writes rows in another way (see host/lowering/expressions/whole_vectors.py).
_ORDINARY = 33


@dataclass(frozen=True, eq=False)
class SymbolicModel:
    """A lowered model for every length of a range.

    Attributes:
        name: of the model.
        dimension: the open one.
        main: the relax function; it takes the inputs and then `parameters`.
        functions: the TensorIR functions by name, each over its own length, in the order of first call.
        units: of these lengths, see `over_own_length`.
        weights: calls of each function in one run. layers: of the model's file that each function computes.
        calls: in one run.
        parameters: folded constants; what depends on the length is as for the longest.
        target: what is compiled for.
    """

    name: str
    dimension: Dimension
    main: Template
    functions: Mapping[str, Template]
    units: Mapping[str, int]
    weights: Mapping[str, int]
    layers: Mapping[str, tuple[Layer, ...]]
    parameters: tuple[np.ndarray, ...]
    target: tvm.target.Target
    calls: CallGraph = field(default_factory=CallGraph)

    def own_length(self, function: str, length: int) -> int:
        """The length of a function at a length of the model."""
        return own_length(length, self.units[function])

    def own_dimension(self, function: str) -> Dimension:
        """The lengths of a function over the range."""
        low, high = (self.own_length(function, end) for end in (self.dimension.low, self.dimension.high))
        return replace(self.dimension, low=low, high=high)

    def module(self, functions: Mapping[str, tirx.PrimFunc]) -> tvm.IRModule:
        """The relax module over the length, with the given function for every name."""
        variable = tirx.Var(_identifier(self.dimension.name), "int64")
        builder = relax.BlockBuilder()
        names = {name: builder.add_func(function, name) for name, function in functions.items()}
        main = mapped(self.main.over(variable), (tvm.ir.GlobalVar, lambda old: names[old.name_hint]))
        units = {name: self.units[name] for name, one in functions.items() if takes_length(one)}
        main = passing_length(main, units, variable) if units else main
        # Memory is planned once, for the longest.
        bound = {variable.name: self.dimension.high}
        builder.add_func(main.with_attr("tir_var_upper_bound", bound), "main")
        return builder.get()


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name) or "length"


def witness_lengths(dimension: Dimension) -> tuple[int, ...]:
    """Lengths with nothing in common: primes, and twice a prime, spread over the range, short ones first.

    Raises:
        LoweringError: the range has too few of them.
    """
    ordinary = [n for n in range(max(_ORDINARY, dimension.low), dimension.high + 1) if _is_prime(n)]
    usual = [n for n in range(max(3, dimension.low), min(_ORDINARY, dimension.high + 1)) if _is_prime(n)]
    lengths = ordinary if len(ordinary) >= _WITNESSES else usual
    if len(lengths) < _WITNESSES:
        raise LoweringError(
            f"{dimension.name}={dimension.low}..{dimension.high} holds too few lengths to generalise from: "
            "give a wider range, or one length"
        )
    # Growing gaps distinguish lines, round-ups and squares; a cap keeps lowering quick.
    step = max(1, min(len(lengths) - 1, 30) // (_WITNESSES - 1))
    first, *places = (i * step for i in range(_WITNESSES))
    near = [lengths[max(1, place - step // 2) : place + step // 2 + 1] for place in places]
    # All on one side of `_ORDINARY`.
    end = dimension.high + 1 if lengths is ordinary else min(_ORDINARY, dimension.high + 1)
    even = [n for n in range(lengths[first] + 1, end) if n % 4 == 2 and _is_prime(n // 2)]
    last = lengths[places[-1]]
    near[-1] = sorted(even, key=lambda n: abs(n - last))[: len(near[-1]) + 1] or near[-1]
    sets = ((lengths[first], *others) for others in product(*near))
    found = [one for one in sets if list(one) == sorted(set(one))]
    return max(found, key=lambda one: (_parities(one), -abs(one[-1] - last)))


def _parities(lengths: Sequence[int]) -> int:
    """Of how many units there are odd and even numbers at these lengths.

    Without both, ceil(n / u) + 1 and 2 * ceil(n / 2 u), which a convolution of stride 2 leaves, look alike.
    """
    return sum(len({own_length(n, unit) % 2 for n in lengths}) == 2 for unit in (1, *UNITS))


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, isqrt(number) + 1))


def lower_over(
    source: Source, dimension: Dimension, board: Board, advance: Callable[[int, int], None]
) -> SymbolicModel:
    """Lower a model for a range of lengths.

    Args:
        source: the open model file.
        dimension: the open dimension.
        board: see `host.lowering.lower`.
        advance: receives the number of lengths that are done, and of all lengths.

    Raises:
        ImportFailed: the compiler cannot express the model.
        LoweringError: it has no lowering, or its structure depends on the length.
    """
    witnesses = witness_lengths(dimension)
    total = len(witnesses) + 1
    longest = _lowered(source, dimension, board, dimension.high)
    advance(1, total)
    lowered: dict[int, LoweredModel] = {}
    for done, length in enumerate(witnesses):
        made = _lowered(source, dimension, board, length)
        _check_parameters(source.name, made.parameters, longest.parameters, length)
        shapes = tuple(_Shaped(array.shape) for array in made.parameters)
        lowered[length] = _without_values(made, shapes)
        advance(done + 2, total)
    return _unified(source.name, dimension, lowered, longest.parameters)


@dataclass(frozen=True)
class _Shaped:
    """A parameter without its values, which have been compared."""

    shape: tuple[int, ...]


def _without_values(model: LoweredModel, shapes: tuple[_Shaped, ...]) -> LoweredModel:
    return replace(model, parameters=shapes)  # type: ignore[arg-type]


def _lowered(source: Source, dimension: Dimension, board: Board, length: int) -> LoweredModel:
    module = source.module_at(dimension.shapes_at(length))
    imported = ImportedModel(
        source.name, source.format, source.path, Signature((), ()), module, (), content_hash=""
    )
    return lower(imported, board, any_length=True)


def _check_parameters(
    name: str, given: Sequence[np.ndarray], longest: Sequence[np.ndarray], length: int
) -> None:
    """Refuse constants that are not the beginning of those at the greatest length."""
    if len(given) != len(longest):
        raise LoweringError(
            f"{name} has {len(given)} constants at length {length} and {len(longest)} at the greatest: "
            "give one length with --shape"
        )
    for index, (short, long) in enumerate(zip(given, longest, strict=True)):
        fits = short.ndim == long.ndim and short.dtype == long.dtype
        if fits and all(a <= b for a, b in zip(short.shape, long.shape, strict=True)):
            part = long[tuple(slice(size) for size in short.shape)]
            if part is long and short is long:
                continue
            if np.array_equal(part, short, equal_nan=short.dtype.kind == "f"):
                continue
        raise LoweringError(
            f"{name}: constant {index} {list(short.shape)} at length {length} is no part of the one at the "
            "greatest length: give one length with --shape"
        )


def _unified(
    name: str,
    dimension: Dimension,
    lowered: Mapping[int, LoweredModel],
    longest: tuple[np.ndarray, ...],
) -> SymbolicModel:
    first = next(iter(lowered.values()))
    names = [task.name for task in first.tasks]
    for length, model in lowered.items():
        if [task.name for task in model.tasks] != names:
            raise LoweringError(
                f"{name} has other kernels at length {length} than at {next(iter(lowered))}: "
                "give one length with --shape"
            )
    _check_results(name, first.module["main"], first.parameters, longest)
    shared = {task: tvm.ir.GlobalVar(task) for task in names}
    main = unify({n: _with_names(model.module["main"], shared) for n, model in lowered.items()}, name)
    found = {
        task.name: over_own_length({n: m.tasks[i].function for n, m in lowered.items()}, task.name)
        for i, task in enumerate(first.tasks)
    }
    functions = {task: template for task, (template, _) in found.items()}
    units = {task: unit for task, (_, unit) in found.items()}
    constants = _constant_arguments(name, first.module["main"], len(longest))
    for task, kinds in constants.items():
        functions[task] = _fixed(functions[task], functions[task].base.params, kinds, longest)
    inputs = len(main.base.params) - len(longest)
    places: dict[int, int] = {inputs + i: i for i in range(len(longest))}
    main = _fixed(main, main.base.params, places, longest)
    weights = {task.name: task.weight for task in first.tasks}
    layers = {task.name: task.layers for task in first.tasks}
    return SymbolicModel(
        name, dimension, main, functions, units, weights, layers, longest, first.target, first.calls
    )


def _check_results(
    name: str, main: relax.Function, given: Sequence[_Shaped | np.ndarray], longest: Sequence[np.ndarray]
) -> None:
    """Refuse outputs that are constants of the length: a bundle has those of the greatest one."""
    constants = dict(
        zip(list(main.params)[len(main.params) - len(longest) :], range(len(longest)), strict=True)
    )
    bound = {one.var: one.value for block in main.body.blocks for one in block.bindings}
    result = bound.get(main.body.body, main.body.body)
    for output in result.fields if isinstance(result, relax.Tuple) else [result]:
        number = constants.get(output)
        if number is not None and given[number].shape != longest[number].shape:
            raise LoweringError(
                f"{name} has an output that depends on the length alone: give one length with --shape, or "
                "compute this output beside the model"
            )


def _with_names(main: relax.Function, names: Mapping[str, tvm.ir.GlobalVar]) -> relax.Function:
    return mapped(main, (tvm.ir.GlobalVar, lambda old: names[old.name_hint]))


def _constant_arguments(name: str, main: relax.Function, constants: int) -> dict[str, dict[int, int]]:
    """By function and position of an argument, the number of the constant that it is in every call.

    Constants of a shape that depends on the length must be the same in all calls; others do not matter.
    """
    parameters = list(main.params)[len(main.params) - constants :]
    numbers = {variable: index for index, variable in enumerate(parameters)}
    found: dict[str, dict[int, int]] = {}
    plain: dict[str, set[int]] = {}

    def visit(call: Any) -> None:
        if not isinstance(call, relax.Call) or getattr(call.op, "name", "") != "relax.call_tir":
            return
        function = call.args[0].name_hint
        for position, argument in enumerate(call.args[1].fields):
            if argument in numbers:
                found.setdefault(function, {})[position] = numbers[argument]
            else:
                plain.setdefault(function, set()).add(position)

    relax.analysis.post_order_visit(main.body, visit)
    for function, positions in plain.items():
        for position in positions & set(found.get(function, {})):
            del found[function][position]
    return found


def _fixed(
    template: Template, parameters: Sequence[Any], places: Mapping[int, int], arrays: Sequence[np.ndarray]
) -> Template:
    """The template with constants of the greatest length, whatever the length is."""
    slots = dict(template.slots)
    start = 0
    for position, parameter in enumerate(parameters):
        literals = numbers_of(parameter.ty)
        if position in places:
            shape = arrays[places[position]].shape
            # A relax type holds its shape twice.
            for offset in range(min(len(literals), 2 * len(shape))):
                if start + offset in slots:
                    slots[start + offset] = Formula(constant=shape[offset % len(shape)])
        start += len(literals)
    return template.with_slots(slots)
