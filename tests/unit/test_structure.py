"""The shape of the repository: imports run one way, and files and folders stay small enough to read."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections import Counter
from pathlib import Path, PurePosixPath

import grimp
import pytest

import host

ROOT = Path(host.__file__).resolve().parents[1]
PACKAGES = ("sdk", "research", "host", "targets", "device_agent", "benchmarks")
SOURCES = {".py", ".cc", ".h", ".c", ".zig", ".j2"}
LONGEST_FILE = 400
WIDEST_FOLDER = 14


# The rooms that a model and a measurement pass through (docs/architecture.md), in the order of their results:
# what each one makes goes to the next, and none calls a later one.
WALKS = {
    "model": (
        "host.importers",
        "host.lowering",
        "host.schedules",
        "host.gensor",
        "host.build",
        "host.bundle",
        "host.transport",
        "host.compare",
        "host.deploy",
    ),
    "measurement": ("host.transport", "host.measure", "host.tuning", "host.compile", "host.commands"),
    "measurement on the board": (
        "device_agent.board",
        "device_agent.power",
        "device_agent.measure",
        "device_agent.execute",
        "device_agent.serve",
    ),
}


@pytest.fixture(scope="module")
def sources() -> list[PurePosixPath]:
    """Sources of the working tree: those that are committed, and new ones that Git does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("this is no working tree of Git")
    paths = [PurePosixPath(line) for line in listed.stdout.splitlines()]
    found = [path for path in paths if path.suffix in SOURCES and (ROOT / path).is_file()]
    assert len(found) > 1000
    return found


def test_no_folder_is_wider_than_a_reader_takes_in(sources: list[PurePosixPath]) -> None:
    widths = Counter(path.parent for path in sources if path.name != "__init__.py")
    assert not {str(folder): width for folder, width in widths.items() if width > WIDEST_FOLDER}


def test_no_file_is_longer_than_a_reader_takes_in(sources: list[PurePosixPath]) -> None:
    lengths = {path: (ROOT / path).read_text(encoding="utf-8").count("\n") for path in sources}
    assert not {str(path): length for path, length in lengths.items() if length > LONGEST_FILE}


def test_no_module_imports_itself_by_others() -> None:
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)
    graph_of = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    # Modules that import nothing that is left are taken away until none is: circles stay, and what is above.
    while free := {name for name, imported in graph_of.items() if not imported & graph_of.keys()}:
        graph_of = {name: imported for name, imported in graph_of.items() if name not in free}
    # The same from above.
    while above := graph_of.keys() - set().union(*graph_of.values()):
        graph_of = {name: imported for name, imported in graph_of.items() if name not in above}
    assert not sorted(graph_of)


@pytest.mark.parametrize("walk", WALKS)
def test_no_step_of_a_walk_calls_a_later_one(walk: str) -> None:
    graph = grimp.build_graph("host", "device_agent", exclude_type_checking_imports=True, cache_dir=None)
    rooms = WALKS[walk]
    pairs = [(room, later) for number, room in enumerate(rooms) for later in rooms[number + 1 :]]
    chains = [graph.find_shortest_chain(importer=a, imported=b, as_packages=True) for a, b in pairs]
    assert not [chain for chain in chains if chain]


def test_the_layers_of_the_document_are_those_that_are_checked() -> None:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    [contract] = [one for one in linter["contracts"] if one["name"] == "The layers of the host"]
    text = (ROOT / "docs" / "architecture.md").read_text().partition("## Layers\n")[2]
    shown = text.split("```")[1].splitlines()
    found = [sorted(re.findall(r"host\.\w+", line)) for line in shown if line.startswith("host.")]
    assert found == [sorted(re.findall(r"host\.\w+", layer)) for layer in contract["layers"]]
