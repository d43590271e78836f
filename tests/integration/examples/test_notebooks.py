"""The notebooks: their cells run in order in a process, and they are stored without outputs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.examples.running import environment

FOLDER = Path(__file__).parents[3] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
# What a notebook shows of the last expression of a cell, without a notebook: its HTML, or its text.
_RUNNER = """
import ast, json, sys
import pytest
from tests.deployments.own_files import read_here
from tests.deployments.short_rounds import shorten
patch = pytest.MonkeyPatch()
read_here(patch)
shorten(patch)
names = {"__name__": "__main__"}
for cell in json.load(open(sys.argv[1], encoding="utf-8"))["cells"]:
    if cell["cell_type"] != "code":
        continue
    body = ast.parse("".join(cell["source"]))
    last = body.body.pop() if isinstance(body.body[-1], ast.Expr) else None
    exec(compile(body, "cell", "exec"), names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        print(value._repr_html_() if hasattr(value, "_repr_html_") else repr(value))
"""


def test_there_are_notebooks() -> None:
    assert [one.stem for one in NOTEBOOKS] == ["deploy_and_compare", "teach_a_board", "write_a_proposer"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_no_outputs_and_ids_of_its_own(path: Path) -> None:
    content = json.loads(path.read_text())
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in content["cells"]}) == len(content["cells"])
    for cell in content["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (
            "deploy_and_compare",
            ("<td>onnxruntime-fp32</td>", "<td>head</td><td>Gemm</td>", "figures got worse"),
        ),
        ("write_a_proposer", ("best_of_random", "us measured")),
        ("teach_a_board", ("8 programs tried", "measured before: ")),
    ],
)
def test_the_cells_run_in_order(name: str, shown: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _RUNNER, str(FOLDER / f"{name}.ipynb")],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for text in shown:
        assert text in done.stdout
