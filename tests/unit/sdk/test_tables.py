"""What notebooks show of results, and frames of pandas."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import sdk
from host.deploy.fleet import Installed
from host.errors import UserError
from host.model import EMULATOR
from host.table import Table
from sdk.fleet import FleetDeployment
from sdk.model import Deployment
from sdk.report.html import write_report
from tests.unit.compare.samples import result
from tests.unit.sdk.report.test_report import quantisation


def shown(page: str) -> list[str]:
    """The texts of the cells."""
    return re.findall(r"<t[dh]>(.*?)</t[dh]>", page)


def test_a_deployment_shows_its_engines_and_kernels() -> None:
    page = Deployment(result(), Path("report.html"))._repr_html_()
    cells = shown(page)
    row = cells.index("onnxruntime")
    assert cells[row : row + 5] == ["onnxruntime", "3", "2.88", "3.12", "1.5"]
    assert "does not read onnx files" in cells
    assert "sort &lt;/script&gt;" in cells and "<script" not in page
    assert page.count("<table>") == 2
    quantised = Deployment(replace(result(), quantisation=quantisation()), Path("report.html"))
    assert "&lt;img&gt;" in shown(quantised._repr_html_()) and "<img" not in quantised._repr_html_()


def test_times_of_an_emulated_device_are_not_shown() -> None:
    page = replace(result(), timing=EMULATOR)._repr_html_()
    assert "the device is emulated" in page and "2.88" not in page


def test_hidden_characters_are_shown_and_nothing_is_fetched() -> None:
    page = Table("a", "x\u202ey", ("c",), (("\x1b[31m",), ('<a href="http://x">',))).html()
    assert "\\u202e" in page and "\\x1b[31m" in page
    assert "<a " not in page and 'href="' not in page


def test_a_long_table_says_how_many_rows_are_left() -> None:
    table = Table("a", "long", ("n",), tuple((number,) for number in range(130)))
    assert table.html().count("<tr>") == 101 and "30 more rows" in table.html()


def test_two_deployments_are_compared_in_a_table(tmp_path: Path) -> None:
    timed = {
        name: replace(figures, rounds_s=(2e-3, 2.1e-3, 2e-3)) for name, figures in result().contenders.items()
    }
    one = replace(result(), contenders=timed)
    write_report(one, tmp_path / "report.html")
    [changes] = sdk.compare(Deployment(one, tmp_path / "report.html"), tmp_path / "report.html").tables()
    assert "latency" in [row[0] for row in changes.rows]
    assert {len(row) for row in changes.rows} == {len(changes.columns)}


def test_a_fleet_shows_every_device() -> None:
    kind = Deployment(result(), Path("report.html"))
    fleet = FleetDeployment((kind,), (Installed("a", "pi5", "abc", 2e-3), Installed("b", "", reason="<off>")))
    assert "&lt;off&gt;" in fleet._repr_html_() and "1 of 2 devices have the model" in fleet._repr_html_()
    assert [table.name for table in fleet.tables()] == ["devices", "local"]


def test_frames_have_the_rows_and_names_of_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    made = SimpleNamespace(DataFrame=lambda rows, columns: SimpleNamespace(rows=rows, columns=columns))
    monkeypatch.setitem(sys.modules, "pandas", made)
    frame = result().to_pandas()
    assert frame.columns[:2] == ["engine", "median_ms"] and frame.rows[0][0] == "tvm"
    assert result().to_pandas("kernels").rows[0][:2] == ["conv", 3]
    with pytest.raises(UserError, match="no table 'kernel': use engines, kernels, layers"):
        result().to_pandas("kernel")


def test_without_pandas_there_is_an_error_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match="pip install pandas"):
        result().to_pandas()
