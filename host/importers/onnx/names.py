"""Names of a model's values for generated code, and those of its nodes that its author knows."""

from __future__ import annotations

import ast
import re

from onnx import NodeProto

from host.importers.layers import source_line

# What torch.onnx writes beside a node.
_SCOPES, _TRACE = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.stack_trace"
_LONGEST_SCOPES = 10_000


def layer_of_node(node: NodeProto) -> tuple[str, str, str]:
    """Name, operator and source line of a node.

    The name is the path of the module where torch.onnx has written it beside the node, else the node's own or
    that of its first output.
    """
    written = {entry.key: entry.value for entry in node.metadata_props if entry.key in (_SCOPES, _TRACE)}
    name = _module_path(written.get(_SCOPES, "")) or node.name or next(iter(node.output), "")
    return name, node.op_type, source_line(written.get(_TRACE, ""))


def _module_path(scopes: str) -> str:
    """The innermost module of a list of names: that of the model, of its modules, and of the node."""
    try:
        names = ast.literal_eval(scopes) if len(scopes) <= _LONGEST_SCOPES else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return ""
    return next((name for name in reversed(names[:-1]) if name), "")


class Names:
    """Makes identifiers out of the names of a model; no identifier is made twice."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def fresh(self, name: str) -> str:
        """An identifier that resembles `name` and that this object has not given before."""
        base = re.sub(r"[^0-9a-zA-Z_]", "_", name)
        if not base or not (base[0].isalpha() or base[0] == "_"):
            base = f"value_{base}"
        candidate, count = base, 1
        while candidate in self._used:
            candidate, count = f"{base}_{count}", count + 1
        self._used.add(candidate)
        return candidate
