"""The site is built without a warning, its links lead somewhere, and its pages say what the code says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import jsonschema
import pytest

from host.errors import UserError
from sdk.cli.project import find_project
from tests.unit.documentation import ROOT, blocks

sys.path.insert(0, str(ROOT / "scripts"))
try:
    import site_commands
    import site_schemas
finally:
    sys.path.pop(0)


class Links(HTMLParser):
    """The addresses of a page, and the anchors that it has."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.loaded: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors.add(found.get("id") or "")
        if tag == "a" and found.get("href"):
            self.targets.add(found["href"] or "")
        address = found.get("src") if tag in ("script", "img", "iframe") else None
        if tag == "link" and found.get("rel") not in ("canonical", "prev", "next"):
            address = found.get("href")
        if address:
            self.loaded.add(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it, where each warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    return {path: Links(path.read_text()) for path in site.rglob("*.html") if path.name != "404.html"}


def test_links_lead_to_pages_files_and_anchors(pages: dict[Path, Links]) -> None:
    missing = []
    for path, links in pages.items():
        for target in links.targets | links.loaded:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            wanted = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not wanted.is_file():
                missing.append(f"{path.name}: {target}")
            elif parts.fragment and wanted in pages and unquote(parts.fragment) not in pages[wanted].anchors:
                missing.append(f"{path.name}: {target}, no such anchor")
    assert missing == []
    assert len(pages) > 40


def test_no_page_asks_another_server_for_anything(site: Path, pages: dict[Path, Links]) -> None:
    for path, links in pages.items():
        assert [one for one in links.loaded if urlsplit(one).netloc] == [], path.name
        assert str(ROOT) not in path.read_text(), path.name
    assert not re.search(
        r"@import|url\(\s*[\"']?https?:", "".join(one.read_text() for one in site.rglob("*.css"))
    )


def test_files_outside_of_docs_are_on_the_site(site: Path, pages: dict[Path, Links]) -> None:
    assert (site / "files/notebooks/deploy_and_compare.ipynb").is_file()
    assert "reference/command-line.html" in {
        target for links in pages.values() for target in links.targets
    }, "the navigation of the first page"
    for name in ("index", "contributing", "changes", "examples", "decisions/index"):
        assert site / f"{name}.html" in pages


def test_every_command_is_on_the_page_of_the_command_line(site: Path) -> None:
    page = (site / "reference/command-line.html").read_text()
    paths = [context.command_path for _, context in site_commands.commands()]
    assert len(paths) > 40
    assert [path for path in paths if f">{path}<" not in page.replace("\n", "")] == []


def test_the_python_page_has_every_public_function(site: Path) -> None:
    import sdk

    page = (site / "reference/python.html").read_text()
    for name in sdk.api.__all__:
        if hasattr(sdk, name):
            assert re.search(rf'id="sdk\.(\w+\.)?{name}"', page), name


@pytest.mark.parametrize("schema", site_schemas.schemas(), ids=lambda one: one.name)
def test_a_schema_is_one_and_is_on_the_site(schema: site_schemas.Schema, site: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(schema.content)
    assert (site / f"reference/schemas/{schema.name}.json").read_text() == site_schemas.schema_file(schema)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ('model = "a.onnx"\nshape = "x=1,3"\ntrain = false\n[gates]\nmax-bundle = "20M"\n', True),
        ('shape = ["seq=1..512"]\nlengths = [16, 128]\npower-modes = ["MAXN"]\npower-cap = 7.5\n', True),
        ('bogus = "x"\n', False),
        ("train = 1\n", False),
        ('objective = "speed"\n', False),
        ("[gates]\nmin-speedup = 'fast'\n", False),
        ("min-speedup = 1.0\n", False),
    ],
)
def test_the_schema_of_a_project_file_allows_what_the_reader_takes(
    text: str, right: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "edgetlm.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    validator = jsonschema.Draft202012Validator(site_schemas.project_schema())
    assert validator.is_valid(tomllib.loads(text)) is right
    if right:
        assert find_project() is not None
    else:
        with pytest.raises(UserError):
            find_project()


def test_the_example_of_a_project_file_is_valid() -> None:
    [example] = [one.text for one in blocks(ROOT / "docs/project.md") if one.kind == "toml"]
    jsonschema.validate(tomllib.loads(example), site_schemas.project_schema())


def test_the_example_of_a_simulated_board_is_valid() -> None:
    [schema] = [one.content for one in site_schemas.schemas() if one.name == "replay"]
    jsonschema.validate(tomllib.loads((ROOT / "examples/replay/small_board.toml").read_text()), schema)
