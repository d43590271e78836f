"""The names for authors of extensions: all that they need is public, and the examples need no more."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import sdk
from sdk import compiler, transport

EXAMPLES = Path(sdk.__file__).resolve().parents[1] / "examples" / "extensions"
# Of the product, an engine's adapter imports only what is on the board: it runs there.
ALLOWED = {"sdk.compiler", "sdk.errors", "sdk.transport", "device_agent.execute.engines.arrays"}

# What is shown of a model that was quantised, or judged on a text; neither a proposer nor a rule reads it.
SHOWN = {"Quantisation", "TextReference"}


@pytest.mark.parametrize("module", [compiler, transport], ids=lambda module: module.__name__)
def test_the_names_are_in_order_and_explained(module: ModuleType) -> None:
    kinds = {name: (not name.isupper(), not name[0].isupper(), name) for name in module.__all__}
    assert sorted(module.__all__, key=kinds.__getitem__) == module.__all__
    for name in module.__all__:
        assert inspect.getdoc(getattr(module, name)), name


def test_types_that_the_compiler_names_are_public() -> None:
    missing = {
        f"{owner}: {word}"
        for owner, function in _annotated()
        for word in re.findall(r"(?<![.\w])[A-Z]\w+", " ".join(map(str, _annotations(function))))
        if _is_ours(function, word) and word not in {*compiler.__all__, *SHOWN}
    }
    assert not missing


def _annotated() -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for name in compiler.__all__:
        value = getattr(compiler, name)
        if inspect.isfunction(value):
            found.append((name, value))
        elif inspect.isclass(value):
            found.append((name, value))
            members = ((key, one) for key, one in vars(value).items() if not key.startswith("_"))
            found += [(f"{name}.{key}", getattr(one, "fget", one)) for key, one in members]
    return [(name, value) for name, value in found if inspect.isfunction(value) or inspect.isclass(value)]


def _annotations(function: object) -> list[object]:
    return list(getattr(function, "__annotations__", {}).values())


def _is_ours(function: object, word: str) -> bool:
    """Whether a name of an annotation is a class of the product."""
    value = getattr(inspect.getmodule(function), word, None)
    return inspect.isclass(value) and value.__module__.split(".")[0] in {"host", "sdk", "targets"}


def test_the_examples_import_nothing_else_of_the_product() -> None:
    imported = {
        (path.parent.name, module)
        for path in EXAMPLES.glob("*/*.py")
        for module in _imports(ast.parse(path.read_text()))
        if module.split(".")[0] in {"sdk", "host", "targets", "device_agent", "research"}
    }
    assert {module for _, module in imported} <= ALLOWED
    assert {example for example, _ in imported} == {"engine", "operator", "proposer", "rule", "transport"}


def _imports(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found
