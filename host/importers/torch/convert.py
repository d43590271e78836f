"""An exported torch program as a relax module, by TVM's frontend with corrections."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import torch
import tvm
from torch import fx
from tvm import relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from device_agent.contract.text import printable
from host.errors import ImportFailed
from host.importers.layers import LayerNames, source_line
from host.importers.native_output import converted, converting
from host.importers.torch import operators, placed, recurrent
from host.importers.torch.functions import complex_values, fourier
from host.importers.torch.indexing import index_put, put_where
from host.importers.torch.program import assertions, control_flow, decompositions, refused
from host.importers.torch.program.fold import CONSTANT, fold_constants
from host.importers.torch.program.promotion import write_promotions
from host.importers.torch.program.zero_points import note_zero_points

_Convert = Callable[[fx.Node], Any]
_OF_COMPLEX = {**complex_values.CONVERTERS, **fourier.CONVERTERS}
# What computes nothing of a tensor, complex or not.
_OF_ANY_TYPE = (CONSTANT.__name__, "_assert_tensor_metadata.default")


class _Importer(ExportedProgramImporter):  # type: ignore[misc]  # TVM has no types
    """TVM's importer, with folded constants, the operator named in errors, and mistakes corrected."""

    def __init__(self) -> None:
        self.constants: list[torch.Tensor] = []
        self.layers = LayerNames()
        super().__init__()

    def create_convert_map(self) -> dict[str, _Convert]:
        """The converters of TVM and of this project, by the name of the operator in the exported program."""
        converters = super().create_convert_map()
        converters |= dict.fromkeys(recurrent.OPERATORS, self._recurrent)
        converters |= {CONSTANT.__name__: self._constant}
        converters["cumsum.default"] = self._running(relax.op.cumsum)
        converters["cumprod.default"] = self._running(relax.op.cumprod)
        converters |= {placed.OPERATOR: self._placed}
        converters |= {name: self._own(name, converters.get(name)) for name in operators.CONVERTERS}
        converters |= {name: self._own(name, None) for name in _OF_COMPLEX if name not in converters}
        return {name: self._named(name, method) for name, method in converters.items()}

    def _check_unsupported_func_type(self, nodes: Any) -> None:
        for node in nodes:
            if node.op != "call_function":
                continue
            name = node.target.__name__
            why = refused.reason(node)
            if why is None and name not in self.convert_map:
                why = f"operator {name} has no conversion"
            if why is not None:
                raise ImportFailed(why, name)

    def _named(self, name: str, method: _Convert) -> _Convert:
        def convert(node: fx.Node) -> Any:
            with converting(name):
                is_complex = name not in _OF_ANY_TYPE and complex_values.is_complex(node, self.env)
                result = self._complex(name, method, node) if is_complex else method(node)
                if isinstance(result, relax.Call):  # which some of TVM's converters leave unbound
                    result = self.block_builder.emit(result)
                self.layers.record(complex_values.tensors(result), *_layer_of(node))
                return result

        return convert

    def _own(self, name: str, of_tvm: _Convert | None) -> _Convert:
        def convert(node: fx.Node) -> Any:
            given = operators.arguments_of(node, self.env)
            function = operators.CONVERTERS.get(name)
            result = None if function is None else function(self.block_builder, node, given)
            if result is None and of_tvm is None:
                raise ImportFailed(f"operator {name} has no conversion of these types and shapes", name)
            return of_tvm(node) if of_tvm is not None and result is None else result

        return convert

    def _complex(self, name: str, method: _Convert, node: fx.Node) -> Any:
        """What an operator makes of complex tensors, or complex ones of real ones."""
        made = complex_values.of_each_part(node, self.env, method)
        if made is None and name in _OF_COMPLEX:
            made = _OF_COMPLEX[name](self.block_builder, node, operators.arguments_of(node, self.env))
        if made is None:
            raise ImportFailed(f"operator {name} of complex numbers has no conversion", name)
        return made

    def _constant(self, node: fx.Node) -> Any:
        value = self.constants[node.args[0]]
        # torch has no arrays of bfloat16, whose type is not NumPy's own.
        narrow = value.dtype is torch.bfloat16
        array = value.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if narrow else value.numpy()
        # With its type: of a single number, relax would make 32 bits.
        parts = [array.real.copy(), array.imag.copy()] if np.iscomplexobj(array) else [array]
        made = [relax.const(part, str(part.dtype)) for part in parts]
        return complex_values.Complex(*made) if len(made) > 1 else made[0]

    def _recurrent(self, node: fx.Node) -> tuple[relax.Expr, ...]:
        return recurrent.convert(self.block_builder, node, self.retrieve_args(node))

    def _placed(self, node: fx.Node) -> relax.Expr:
        """One index that is a vector, as caches are written; or a mask; or several indices together."""
        arguments = self.retrieve_args(node)
        axis = placed.along_one_axis(arguments)
        if axis is not None:
            return placed.placed(self.block_builder, arguments, axis)
        for convert in (put_where, index_put):
            made = convert(self.block_builder, arguments)
            if made is not None:
                return made
        return self._index_put(node)

    def _running(self, combine: Callable[..., Any]) -> _Convert:
        """Sums or products along an axis up to each element.

        Those of whole numbers and truth values are int64 in torch; TVM keeps the type of the input.
        """

        def convert(node: fx.Node) -> relax.Expr:
            value = self.env[node.args[0]]
            dtype = str(node.meta["val"].dtype).removeprefix("torch.")
            return self.block_builder.emit(combine(relax.op.astype(value, dtype), node.args[1], dtype))

        return convert


def convert_program(program: torch.export.ExportedProgram) -> tvm.IRModule:
    """Build `main` of a program whose shapes are numbers, weights bound as constants.

    Raises:
        ImportFailed: an operator that relax cannot express, or a buffer that is to be kept between calls.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations inside torch and TVM
        return converted(lambda: _converted(program), "program")


def _refuse_kept(program: torch.export.ExportedProgram) -> None:
    """Refuse a buffer that a call changes and the next one reads: it would begin anew at each call."""
    signature = program.graph_signature
    changed = set(signature.buffers_to_mutate.values())
    for node in program.graph.nodes:
        name = signature.inputs_to_buffers.get(node.name)
        if node.op == "placeholder" and name in changed and node.users:
            raise ImportFailed(
                f"buffer {printable(name, 100)!r} is changed by the model, and nothing keeps it between "
                "calls: give it as an input and return it as an output"
            )


def _converted(program: torch.export.ExportedProgram) -> tvm.IRModule:
    if not any(tensor.layout != torch.strided for tensor in program.state_dict.values()):
        kept = [*recurrent.kept_whole(), *operators.kept_whole()]
        known = {**dict(torch.export.default_decompositions().items()), **decompositions.table()}
        program = program.run_decompositions({k: v for k, v in known.items() if k not in kept})
    _refuse_kept(program)
    control_flow.write_out(program.graph_module)
    assertions.leave_out(program.graph)
    write_promotions(program)
    note_zero_points(program)
    importer = _Importer()
    importer.constants = fold_constants(program, importer.convert_map)
    return importer.layers.written(importer.from_exported_program(program, False, True, False, None))


def _layer_of(node: fx.Node) -> tuple[str, str, str]:
    """The path of a node's module, or its own name; its operator; the line of the user's program."""
    modules = node.meta.get("nn_module_stack") or {}
    path = str(next(reversed(modules.values()))[0]) if modules else ""
    operator = str(getattr(node.target, "__name__", node.target)).removesuffix(".default")
    return path or node.name, operator, source_line(node.meta.get("stack_trace") or "")
