"""The versions of the rules without TVM, which the modules of the rules import."""

from __future__ import annotations

import ast
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
    return dict(_declared(path) for path in sorted(_FAMILIES.glob("c*/*/rule.py")))


def _declared(path: Path) -> tuple[str, int]:
    """The `name` and `version` that the rule's class declares."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.ClassDef):
            continue
        values = {
            target.id: statement.value.value
            for statement in node.body
            if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
            for target in statement.targets
            if isinstance(target, ast.Name)
        }
        name, version = values.get("name"), values.get("version")
        if isinstance(name, str) and isinstance(version, int):
            return name, version
    raise AssertionError(f"{path} declares no rule")
