"""Which operation of a model's file each relax variable is the result of, in the variable's name.

Names of variables pass through relax's own passes and from a worker to its parent, and change no program.
"""

from __future__ import annotations

import re
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from host.model import Layer

# Frames of a traceback as Python prints them.
_FRAME = re.compile(r'File "([^"\n]{1,1000})", line (\d{1,9})')
_LONGEST = 100_000
# Folders of the library that exported the model, whose lines say nothing of it.
_LIBRARY = re.compile(r"(?:site|dist)-packages[/\\]torch[/\\]")
# How litert-torch names a result: operations between ";;", of each the modules around it between slashes, and
# a number. A module is its class, with the class's own module, and its name in the module around it; the
# first one has no name.
_LITERT = re.compile(r"([\w.]+(?:/[\w.]+)*);\d{0,9}$", re.ASCII)
_NAMED_CLASS = re.compile(r"(?:\w+\.)+_*[A-Za-z0-9]+_(\w+)", re.ASCII)


class LayerNames:
    """Collects results of operations while an importer converts them, in the order of the file."""

    def __init__(self) -> None:
        self._layers: dict[Any, Layer] = {}
        self._count = 0

    def record(self, result: Any, name: str, operator: str, source: str = "") -> None:
        """Remember what made a result: a relax value, or a tuple of them. The first that made it counts."""
        layer = Layer(self._count, name, operator, source)
        self._count += 1
        for value in _values(result):
            if isinstance(value, relax.Var):
                self._layers.setdefault(value, layer)

    def written(self, module: tvm.IRModule) -> tvm.IRModule:
        """The module with `Layer.variable` as the name of each variable of `main` that was recorded."""
        module = tvm.IRModule(module.functions, attrs=module.attrs)
        module["main"] = _Naming(self._layers).visit_expr(module["main"])
        return module


def module_path(name: str) -> str:
    """The path of a module in a name of litert-torch: `0.conv` of `m.Net/m.Block_0/torch.nn.Conv2d_conv;`.

    A result of several operations, such as a convolution with its activation, is under the first of them,
    which litert-torch writes last. Other names stay as they are.
    """
    found = _LITERT.fullmatch(name.rpartition(";;")[2])
    if not found:
        return name
    root, *inner = found[1].split("/")
    parts = [_NAMED_CLASS.fullmatch(one) for one in inner]
    if not all(parts):
        return name
    return ".".join(part[1] for part in parts if part) or root.rpartition(".")[2]


def source_line(trace: str) -> str:
    """File and line of the innermost frame that is not torch's own, as `net.py:12`; "" where there is none.

    Args:
        trace: a traceback as text, outermost frame first. Only the end of a long one is read.
    """
    for path, line in reversed(_FRAME.findall(trace[-_LONGEST:])):
        if not _LIBRARY.search(path):
            name = path.replace("\\", "/").rpartition("/")[2]
            return f"{name}:{line}"
    return ""


def _values(result: Any) -> list[Any]:
    if isinstance(result, relax.Tuple):
        return list(result.fields)
    return list(result) if isinstance(result, tuple | list) else [result]


@mutator
class _Naming(PyExprMutator):  # type: ignore[misc]  # TVM has no types
    """Gives variables other names."""

    def __init__(self, layers: dict[Any, Layer]) -> None:
        super().__init__()
        self._layers = layers

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """Bind the value to a variable with the layer's name; what is bound twice keeps its first layer."""
        layer = self._layers.get(binding.var)
        if layer is None and isinstance(binding.value, relax.Var):
            layer = self._layers.get(binding.value)
        if layer is None:
            super().visit_var_binding_(binding)
            return
        value = self.builder_.normalize(self.visit_expr(binding.value))
        named = type(binding.var)(layer.variable, value.ty)
        self.set_var_remap(binding.var, named)
        self.builder_.emit_normalized(relax.VarBinding(named, value))
