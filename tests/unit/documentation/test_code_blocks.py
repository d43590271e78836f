"""Commands of the documents are those of the command line, and programs import what exists."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.exceptions import TyperException

from host.errors import UserError
from tests.unit.documentation import DOCUMENTS, ROOT, Block, blocks, commands, parse

BLOCKS = [block for path in DOCUMENTS for block in blocks(path)]
COMMANDS = [(block.document, line) for block in BLOCKS for line in commands(block.text)]
GUIDE = [path.relative_to(path.parents[1]).as_posix() for path in DOCUMENTS if path.parent.name == "guide"]
# Of devices with a camera, which the host's tests do not have.
ABSENT = ("cv2",)


@pytest.mark.parametrize(("document", "line"), COMMANDS, ids=[f"{one}: {line}" for one, line in COMMANDS])
def test_a_command_parses(document: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder with the project file of docs/project.md, which some of the commands go by."""
    [project] = [one.text for one in blocks(ROOT / "docs/project.md") if one.kind == "toml"]
    (tmp_path / "edgetlm.toml").write_text(project)
    monkeypatch.chdir(tmp_path)
    parse(line)


@pytest.mark.parametrize(
    "line",
    ["sdk deploi model.onnx", "sdk deploy model.onnx --devise pi5", "sdk devices add", "sdk targets -o xml"],
)
def test_a_command_that_there_is_not_is_found(line: str) -> None:
    with pytest.raises((TyperException, UserError)):
        parse(line)


def test_every_page_of_the_guide_has_commands() -> None:
    assert len(GUIDE) >= 5
    found = {document.removeprefix("docs/") for document, _ in COMMANDS}
    assert set(GUIDE) <= found


@pytest.mark.parametrize(
    "block", [one for one in BLOCKS if one.kind == "python"], ids=lambda one: one.document
)
def test_a_program_compiles_and_what_it_imports_exists(block: Block) -> None:
    tree = ast.parse(block.text)
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                if one.name not in ABSENT:
                    importlib.import_module(one.name)
                    # A name of its own is that of the module, otherwise the package is bound.
                    package = one.name.partition(".")[0]
                    modules[one.asname or package] = sys.modules[one.name if one.asname else package]
        elif isinstance(node, ast.ImportFrom) and node.module and node.module not in ABSENT:
            module = importlib.import_module(node.module)
            absent = [one.name for one in node.names if not hasattr(module, one.name)]
            assert [name for name in absent if not importlib.util.find_spec(f"{node.module}.{name}")] == []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            assert hasattr(modules[node.value.id], node.attr), f"{node.value.id}.{node.attr}"


@pytest.mark.parametrize(
    "block",
    [one for one in BLOCKS if one.kind in ("toml", "yaml")],
    ids=lambda one: f"{one.document}-{one.kind}",
)
def test_a_file_of_settings_is_one(block: Block) -> None:
    assert tomllib.loads(block.text) if block.kind == "toml" else yaml.safe_load(block.text)


@pytest.mark.parametrize("block", [one for one in BLOCKS if one.kind == "json"], ids=lambda one: one.document)
def test_json_is_json(block: Block) -> None:
    assert [json.loads(line) for line in block.text.splitlines() if line.strip()]
