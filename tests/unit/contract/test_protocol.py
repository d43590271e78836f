"""What two languages have to agree on is data: neither has a copy of its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from device_agent.contract.manifest import BACKENDS
from device_agent.contract.protocol import PROTOCOL
from host import options
from host.payload.contract_header import contract_headers

ROOT = Path(__file__).resolve().parents[3]
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')


def _values() -> list[str]:
    return [value for section in PROTOCOL for value in section if isinstance(value, str)]


def _written(path: Path) -> Iterator[str]:
    """The strings of a source, without its comments and docstrings."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from _LITERAL.findall(re.sub(r"//[^\n]*", "", text))
        return
    tree = ast.parse(text)
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.value


@pytest.mark.parametrize("folder", ["device_agent", "host", "sdk", "examples/cpp"])
def test_no_source_repeats_it(folder: str) -> None:
    values = set(_values())
    sources = [path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".cc", ".h")]
    assert sources
    assert [f"{path}: {text}" for path in sources for text in _written(path) if text in values] == []


def test_the_header_has_all_of_it() -> None:
    header = contract_headers()["contract/protocol.h"]
    for section in PROTOCOL:
        for name, value in section._asdict().items():
            kinds = {str: "char", int: "int64_t", float: "double", tuple: "const char\\* const"}
            kind = kinds[type(value)]
            assert re.search(rf"constexpr {kind} {name}(\[\])? = ", header), name
    assert all(f'= "{value}";' in header for value in _values())


def test_both_languages_and_the_options_have_the_same_backends() -> None:
    header = contract_headers()["contract/protocol.h"]
    declared = re.findall(r"const char\* const (?:board_)?backends\[\] = \{(.*)\};", header)
    assert _LITERAL.findall(", ".join(declared)) == list(BACKENDS) == list(options.BACKENDS)
