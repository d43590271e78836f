"""What mkdocs does beside its settings: pages made from the code, and pages that lie outside of docs.

The address of each page follows from where its file lies, so that links between files work in the repository
as they do on the site: a link that leaves docs leads to the page of the file, or to a copy of the file.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from site_commands import command_page
from site_schemas import schema_file, schema_page, schemas

ROOT = Path(__file__).resolve().parent.parent
# Pages by the file of the repository that they are made of.
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "examples/README.md": "examples.md",
}
# Folders that are linked to, and what a reader of the site finds instead.
FOLDERS = {
    "docs/decisions": "decisions/index.md",
    "docs/guide": "guide/raspberry-pi-5.md",
    "examples": "examples.md",
    "notebooks": "notebooks.md",
}
_LINK = re.compile(r"\[(?P<text>[^\]\n]+)\]\((?P<target>[^)#\s]*)(?P<anchor>#[^)\s]*)?\)")
_FENCE = re.compile(r"^(```.*?^```|~~~.*?^~~~)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made, and those of other folders."""
    made = {
        "reference/command-line.md": command_page(),
        "reference/schemas.md": schema_page(),
        "decisions/index.md": _decisions(files),
        "notebooks.md": _notebooks(),
    }
    made |= {f"reference/schemas/{one.name}.json": schema_file(one) for one in schemas()}
    made |= {page: (ROOT / source).read_text(encoding="utf-8") for source, page in OUTSIDE.items()}
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn links to files of the repository into links to pages, outside of blocks of code."""
    source = source_of(page.file.src_uri)
    parts = _FENCE.split(markdown)
    for number in range(0, len(parts), 2):
        parts[number] = _LINK.sub(
            lambda found: _linked(found, source, page.file.src_uri, files, config), parts[number]
        )
    return "".join(parts)


def source_of(page: str) -> str:
    """The file of the repository that a page is made of."""
    return next((source for source, made in OUTSIDE.items() if made == page), f"docs/{page}")


def _linked(found: re.Match[str], source: str, page: str, files: Files, config: Any) -> str:
    target, anchor = found["target"], found["anchor"] or ""
    if not target or re.match(r"[a-z]+:", target):
        return found[0]
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    wanted = _page_of(path)
    if wanted is None:
        wanted = f"files/{path}"
        if not (ROOT / path).is_file() or path.startswith(".."):
            raise PluginError(f"{source}: there is no {target}")
        if files.get_file_from_path(wanted) is None:
            files.append(File.generated(config, wanted, abs_src_path=str(ROOT / path)))
    return f"[{found['text']}]({posixpath.relpath(wanted, posixpath.dirname(page) or '.')}{anchor})"


def _page_of(path: str) -> str | None:
    if path in OUTSIDE:
        return OUTSIDE[path]
    if path in FOLDERS:
        return FOLDERS[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else None


def _decisions(files: Files) -> str:
    lines = ["# Decisions", "", "What was decided between real alternatives, when, and why.", ""]
    for name in sorted(one.src_uri for one in files if re.match(r"decisions/\d{4}-", one.src_uri)):
        title = (ROOT / "docs" / name).read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        # With its point escaped, the number is text and not an item of a list.
        lines.append(f"- [{title.replace('. ', chr(92) + '. ', 1)}]({posixpath.basename(name)})")
    return "\n".join(lines) + "\n"


def _notebooks() -> str:
    """A list of the notebooks with the first heading of each, which the tests run."""
    import json

    lines = ["# Notebooks", "", "The tests run each of them, on a simulated board where it needs one.", ""]
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        text = next("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        title = text.splitlines()[0].lstrip("# ")
        lines.append(f"- [{title}](../notebooks/{path.name})")
    return "\n".join(lines) + "\n"
