"""A TFLite graph as a relax module, by TVM's frontend with corrections."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import tvm
from tvm import relax
from tvm.relax.frontend.tflite import from_tflite

from host.errors import ImportFailed
from host.importers.layers import LayerNames, module_path
from host.importers.native_output import converted, converting
from host.importers.tflite.model_file import operator_name
from host.importers.tflite.real_numbers import RealNumbers

# Types of indices.
_INDICES = {"int32", "int64"}
# What TVM calls custom operators that it converts.
_CUSTOM = {"TFLite_Detection_PostProcess": "DETECTION_POSTPROCESS"}


class _Converter(RealNumbers):
    """TVM's converter, with results bound once, the operator named in errors, and mistakes corrected."""

    def __init__(self, layers: LayerNames, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._layers = layers
        self.convert_map: dict[str, Any] = {
            name: self._named(name, method) for name, method in self.convert_map.items()
        }

    def check_unsupported_ops(self) -> None:
        """Refuse operators without a converter by name.

        Raises:
            ImportFailed: there is such an operator.
        """
        for index in range(self.subgraph.OperatorsLength()):
            name = self.get_op_code_str(self.subgraph.Operators(index))
            if name not in self.convert_map:
                raise ImportFailed(f"operator {name} has no conversion", name)

    def get_op_code_str(self, op: Any) -> str:
        """The operator's name; TVM takes those for ADD whose number is in the wider field alone."""
        name = operator_name(self.model, op)
        return _CUSTOM.get(name, name)

    def convert_embedding_lookup(self, op: Any) -> Any:
        """The indices come first and the table second; TVM has them the other way round."""
        indices, table = self.get_input_tensors(op)
        return relax.op.take(self.get_tensor_expr(table), self.get_tensor_expr(indices), axis=0, mode="clip")

    def convert_gather_nd(self, op: Any) -> Any:
        """TFLite and relax agree on the order of the indices' axes; TVM moves the last one to the front."""
        data, indices = self.get_input_tensors(op)
        numbers = relax.op.astype(self.get_tensor_expr(indices), "int64")
        return relax.op.gather_nd(self.get_tensor_expr(data), numbers)

    def convert_gelu(self, op: Any) -> Any:
        """GELU by erf or by tanh, by the operator's attribute; TVM supports erf only."""
        from tflite.GeluOptions import GeluOptions

        table = op.BuiltinOptions()
        if table is None:
            return super().convert_gelu(op)
        options = GeluOptions()
        options.Init(table.Bytes, table.Pos)
        if not options.Approximate():
            return super().convert_gelu(op)
        (tensor,) = self.get_input_tensors(op)
        return relax.op.nn.gelu_tanh(self.get_tensor_expr(tensor))

    def _named(self, name: str, method: Any) -> Any:
        def convert(op: Any) -> Any:
            with converting(name):
                result = method(op=op)
                # Bound here: TVM repeats an expression at each of its uses.
                bound = self._fit(op, self.bb.emit(result)) if _unbound(result) else result
                bound = self.rounded(op, name, bound)
                self._layers.record(bound, self._output_name(op), name)
                return bound

        return convert

    def _output_name(self, op: Any) -> str:
        names = (str(one.tensor.Name().decode("utf-8")) for one in self.get_output_tensors(op))
        return module_path(next(names, ""))

    def _fit(self, op: Any, value: relax.Var) -> relax.Expr:
        """The value as declared, where the converter has the width of indices or axes of size 1 wrong."""
        outputs = self.get_output_tensors(op)
        if len(outputs) != 1 or not isinstance(value.ty, relax.TensorType) or value.ty.shape is None:
            return value
        wanted = self._get_relax_tensor_dtype(outputs[0])
        if {str(value.ty.dtype), wanted} == _INDICES:
            value = self.bb.emit(relax.op.astype(value, wanted))
        declared = [int(size) for size in self.get_tensor_shape(outputs[0])]
        made = [getattr(size, "value", None) for size in value.ty.shape.values]
        if [size for size in made if size != 1] != [
            size for size in declared if size != 1
        ] or made == declared:
            return value
        return self.bb.emit(relax.op.reshape(value, declared))


def _unbound(value: Any) -> bool:
    bound = relax.Var | tvm.ir.GenericConst | relax.Tuple | relax.ShapeExpr
    return isinstance(value, relax.Expr) and not isinstance(value, bound)


def convert_model(model: Any) -> tvm.IRModule:
    """Build `main` of a TFLite model.

    Raises:
        ImportFailed: an operator that relax cannot express.
    """
    layers = LayerNames()
    with _ignore_warnings():
        module = converted(lambda: from_tflite(model, op_converter=partial(_Converter, layers)), "graph")
    function = module["main"]
    if function.attrs is not None and "params" in function.attrs:
        module["main"] = function.without_attr("params")
    return layers.written(module)


@contextlib.contextmanager
def _ignore_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations inside the frontend
        yield
