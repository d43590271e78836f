"""Reports of what others named: shown as text by the page, by its charts and by programs that read it."""

from __future__ import annotations

import json
import re
import struct
import zipfile
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from device_agent.contract.text import is_printable
from host.errors import EdgeError
from host.model import Energy, Signature, TensorSpec
from sdk.cli.main import main
from sdk.report.figures import deploy_json
from sdk.report.html import render, write_report
from sdk.report.page import figures_in
from sdk.report.sides import read_side
from tests.browser import page_in_browser
from tests.unit.compare.samples import result, task

_RUN = "document.title='PWN'"
NAMES = [
    f"<script>{_RUN}</script>",
    f'</script><img src=x onerror="{_RUN}">',
    '<a href="http://evil.example/">click</a>',
    f'<a href="javascript:{_RUN}">click</a>',
    '" onmouseover="x" \'',
    "{{ 7 * 7 }}",
    "%{x}<extra></extra><b>bold</b>",
    "\x1b]0;PWN\x07\x1b[31m\u202eturned\nline\x00\udcff",
    "&lt;script&gt;",
]


def evil(name: str):
    """A deployment in which everything that can be named has this name."""
    made = result(Energy("measured", 0.25, 0.125, name, name, rails=(name,), reason=name, accuracy=name))
    state = {name: name, "list": [name], "inner": {name: name}}
    chosen = made.contenders["tvm"]
    measured = replace(chosen.measurement, state_before=state, state_after=state)
    return replace(
        made,
        name=name,
        bundle=Path("out") / name.replace("\x00", "").replace("/", "_"),
        device=name,
        machine=replace(made.machine, cpu_name=name),
        signature=Signature((TensorSpec(name, (1, 3), "float32"),), (TensorSpec(name, (1, 4), name),)),
        choice=replace(made.choice, why=name),
        contenders={
            "tvm": replace(chosen, measurement=measured),
            name: replace(made.contenders["onnxruntime"]),
            name + "2": replace(made.contenders["litert"], reason=name),
        },
        ratios={},
        tasks=(
            replace(task(name, name, 3, 500.0), rule=name, reason=name),
            task(name + "2", "default", 1, 1.0),
        ),
        fallback=name,
        seconds={name: 1.0, "total": 4.0},
        versions={name: name},
        command=name,
    )


_CHART = re.compile(r'<figure class="chart"[^>]*>(.*?)</figure>', re.S)


def _elements(page: str) -> list[str]:
    """Tags with their attributes, without what `meta` says and charts, whose sizes follow the names.

    Nor does a `wbr` count: a name folds at its own words.
    """
    own = re.sub(r'(<meta property="[a-z:]+" content=)"[^"<>]*">', r"\1>", page)
    return re.findall(r"<(?!wbr>)[a-z/!][^>]*>", _CHART.sub("", re.sub(r"&[a-z#0-9]+;", "", own)))


@pytest.mark.parametrize("name", NAMES)
def test_no_name_is_markup_or_hidden(name: str) -> None:
    page = render(evil(name))
    assert all(character == "\n" or character.isprintable() for character in page)
    for script in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.S):
        json.loads(script)
    # The page's own elements, and not one more.
    assert _elements(page) == _elements(render(evil("plain")))
    charts = _CHART.findall(page)
    assert len(charts) == 5
    for chart in charts:
        for element in ElementTree.fromstring(f"<both>{chart}</both>").iter():
            assert element.tag in {"both", "svg", "title", "g", "path", "rect", "text"}
            assert not [value for value in element.attrib.values() if ":" in value or "PWN" in value]
    kept = figures_in(page)
    assert kept is not None and kept["name"] == name


def test_a_browser_runs_and_links_nothing(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    write_report(evil("".join(NAMES)), report)
    page = page_in_browser(report, tmp_path / "profile")
    title = re.search(r"<title>(.*?)</title>", page, re.S)
    assert title is not None and "<script>" not in title.group(1) and title.group(1) != "PWN"
    shown = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert "<svg" in shown, "the charts are drawn"
    assert not re.search(r"<(a|img|image|iframe|object|use)\b[^>]*(href|src)", shown)
    assert "evil.example" in re.sub(r"<[^>]*>", "", shown), "it is shown as text"


def test_a_report_with_a_name_that_is_no_text_is_written(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(evil("caf\udce9"), path)
    assert r"caf\udce9" in path.read_text(encoding="utf-8")


def _figures(**changes: object) -> str:
    return json.dumps({**deploy_json(result()), **changes})


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        '{"schema": ' * 100_000,
        "\0" * 100,
        "[]",
        "5",
        '{"schema": "\\u001b]0;PWN\\u0007"}',
        '{"schema": ["x"]}',
        '<script type="application/json" id="figures">[1]</script>',
        '<script type="application/json" id="figures">' + "[" * 100_000 + "</script>",
        '<script type="application/json" id="figures">{}',
    ],
)
@pytest.mark.parametrize("suffix", [".json", ".html"])
def test_a_result_that_is_none(
    tmp_path: Path, text: str, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"result{suffix}"
    path.write_text(text)
    assert main(["report", "compare", str(path), str(path)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {path} is ") and is_printable(err.rstrip("\n"))


def test_an_archive_of_several_disks_is_no_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bundle.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", "{}")
    begin, mark, end = path.read_bytes().partition(b"PK\x05\x06")
    path.write_bytes(begin + b"PK\x06\x07" + struct.pack("<IQI", 0, 0, 2) + mark + end)
    assert main(["report", "compare", str(path), str(path)]) == 1
    assert "the archive is damaged" in capsys.readouterr().err


@pytest.mark.parametrize("rounds", [[0.0], [-1.0], [float("inf")], [float("nan")], ["x"], {"a": 1}, [[1.0]]])
def test_figures_that_are_none_are_damaged(tmp_path: Path, rounds: object) -> None:
    path = tmp_path / "result.json"
    path.write_text(_figures(samples={"rounds_ms": rounds, "windows_mj": []}))
    with pytest.raises(EdgeError, match="is damaged"):
        read_side(path)


def test_a_comparison_shows_names_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, name in enumerate(NAMES):
        for side in ("before", "after"):
            samples = {"rounds_ms": [2.0, 2.1] * 10, "windows_mj": []}
            text = _figures(name=name + side, device=name + side, versions={name: side}, samples=samples)
            (tmp_path / f"{side}{number}.json").write_text(text)
        sides = [str(tmp_path / f"{side}{number}.json") for side in ("before", "after")]
        assert main(["report", "compare", *sides]) == 0
        out = capsys.readouterr().out
        assert all(character == "\n" or character.isprintable() for character in out)
