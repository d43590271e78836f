"""The versions of the rules without TVM, which the modules of the rules import."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from host.extensions import extensions

_FAMILIES = Path(__file__).parents[2] / "schedules"


def known_versions() -> dict[str, int]:
    """What `host.schedules.families.rule_versions` says, read off the sources of this package's rules.

    TVM is imported only where an installed package has a rule.

    Raises:
        UserError: an installed package's rule cannot be used.
    """
    if extensions("rules"):
        from host.schedules.families import rule_versions

        return rule_versions()
    declared = [_declared(path) for path in sorted(_FAMILIES.glob("c*/*/rule.py"))]
    versions = {one.class_name: one.version for one in declared}
    return {one.name: _value(one.version, versions) for one in declared}


@dataclass(frozen=True)
class _Declared:
    """What the class of a rule declares.

    Attributes:
        class_name: of the rule.
        name: as it is called.
        version: a sum of numbers and of the versions of other rules.
    """

    class_name: str
    name: str
    version: ast.expr


def _declared(path: Path) -> _Declared:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.ClassDef):
            continue
        values = {
            target.id: statement.value
            for statement in node.body
            if isinstance(statement, ast.Assign)
            for target in statement.targets
            if isinstance(target, ast.Name)
        }
        name, version = values.get("name"), values.get("version")
        if isinstance(name, ast.Constant) and isinstance(name.value, str) and version is not None:
            return _Declared(node.name, name.value, version)
    raise AssertionError(f"{path} declares no rule")


def _value(expression: ast.expr, versions: Mapping[str, ast.expr]) -> int:
    """The number that an expression like `1 + Tiled.version` stands for."""
    match expression:
        case ast.Constant(value=int(number)):
            return number
        case ast.Attribute(value=ast.Name(id=name), attr="version"):
            return _value(versions[name], versions)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _value(left, versions) + _value(right, versions)
    raise AssertionError(f"{ast.unparse(expression)} is no version of a rule")
