"""The graph of a run in a report: rows with the layers of the model, and lanes between them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from host.deploy import DeployResult
from host.model import CallGraph, KernelCall, Layer
from sdk.report.figures import deploy_json
from sdk.report.html import render
from sdk.report.kernels.graph import MOST_CALLS, ROW_PX, graph_of, places_of
from sdk.report.kernels.layers import layer_tree
from tests.browser import LARGEST_PAGE_BYTES, measured_in_browser
from tests.page_audit import audit_in_browser
from tests.unit.compare.samples import result, task

# The first convolution's result goes to the second one and, past it, to the sum.
STEM = (Layer(0, "stem", "convolution", "net.py:7"), Layer(1, "relu", "relu"))
BLOCK = (Layer(2, "layer1.conv1", "convolution"), Layer(3, "layer1.<b>", "norm"), Layer(4, "layer1", "relu"))
SUM = (Layer(5, "layer1.conv2", "convolution"), Layer(6, "layer1", "add\x1b[31m"))
RESIDUAL = CallGraph(
    (KernelCall("conv", STEM, (-1,)), KernelCall("conv", BLOCK, (0,)), KernelCall("sum", SUM, (1, 0))), (2,)
)


def _residual() -> DeployResult:
    tasks = (
        replace(task("conv", "gensor", 2, 40.0), layers=STEM + BLOCK),
        replace(task("sum", "tlm", 1, 10.0), layers=SUM),
    )
    return replace(result(), tasks=tasks, calls=RESIDUAL)


def test_a_chain_is_one_lane_and_a_branch_another() -> None:
    assert places_of([[], [0], [1], [2]]) == [0, 0, 0, 0]
    # Rows 1 and 3 are read by row 4: between them the results of 2 and 3 lie in the next lane.
    assert places_of([[], [0], [1], [2], [3, 1], [4]]) == [0, 0, 1, 1, 0, 0]
    # Three that read one input, and what joins them.
    assert places_of([[], [0], [0], [0], [1, 2, 3]]) == [0, 1, 2, 0, 0]
    # What nobody reads keeps no lane.
    assert places_of([[], [], [1], [0, 2]]) == [0, 1, 1, 0]


def test_no_two_results_are_in_a_lane_at_once() -> None:
    reads = [[], *([row // 2, max(0, row - 3), row // 3] for row in range(60))]
    lanes = places_of(reads)
    last = {
        one: max((row for row, those in enumerate(reads) if one in those), default=one) for one in range(61)
    }
    for one in range(61):
        for other in range(one + 1, last[one]):
            assert lanes[other] != lanes[one], (one, other)


def test_rows_have_the_layers_of_their_calls_under_the_names_of_the_model() -> None:
    graph = graph_of(_residual())
    assert graph is not None and graph.left_out == 0
    assert [(row.within, row.names) for row in graph.rows] == [
        ("", ("image",)),
        ("", ("stem", "relu")),
        ("layer1.", ("conv1", "<b>", "relu")),
        ("layer1.", ("conv2", "add\\x1b[31m")),
        ("", ("</script><b>",)),
    ]
    assert [row.time_us for row in graph.rows] == [None, 40.0, 40.0, 10.0, None]
    assert graph.rows[1].source == "net.py:7" and graph.rows[3].task == 1
    page = render(_residual()).split("<script")[0]
    assert "3 calls of 2 kernels" in page and "&lt;b&gt;" in page and "\x1b" not in page
    assert '<a href="#kernel-1">sum</a>' in page and '<tr id="kernel-1"><td><code>sum</code>' in page
    assert "The graph of a run" not in render(result())


def test_a_layer_that_is_a_module_stands_in_it_in_the_order_of_the_file() -> None:
    tree = layer_tree(_residual().tasks)
    assert tree is not None and [
        getattr(part, "name", part[0] if isinstance(part, tuple) else "") for part in tree.parts
    ] == ["stem", "relu", "layer1"]
    assert [name for name, _, _ in tree.modules["layer1"].layers] == [
        "conv1",
        "<b>",
        "relu",
        "conv2",
        "add\\x1b[31m",
    ]


def test_the_graph_is_data_too() -> None:
    graph = json.loads(json.dumps(deploy_json(_residual())))["graph"]
    assert graph["inputs"] == ["image"] and graph["outputs"] == [2]
    assert graph["calls"][2] == {"kernel": "sum", "layers": [5, 6], "reads": [1, 0]}
    assert deploy_json(result())["graph"] is None


def test_a_run_of_very_many_calls_is_cut_off_and_says_so() -> None:
    layers = [Layer(i, f"/model/layers.{i}/{'deep/' * 30}part", "MatMul") for i in range(5000)]
    calls = tuple(KernelCall("dense", (layer,), (number - 1,)) for number, layer in enumerate(layers))
    many = replace(
        result(),
        tasks=(replace(task("dense", "gensor", 5000, 5.0), layers=tuple(layers)),),
        calls=CallGraph(calls, (4999,)),
    )
    page = render(many)
    assert f"{5000 - MOST_CALLS} more calls are left out here" in page
    assert len(page.encode()) < LARGEST_PAGE_BYTES


@pytest.mark.parametrize("width", [400, 700, 1000])
def test_rows_lie_beside_their_dots_at_any_width(width: int, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(render(_residual()))
    found = measured_in_browser(
        path,
        tmp_path / "profile",
        width,
        "const middle = one => { const box = one.getBoundingClientRect(); return box.top + box.height / 2; };"
        "const all = selector => [...page.querySelectorAll(selector)].map(middle);"
        "return {rows: all('.graph li'), dots: all('.graph circle')};",
    )
    assert len(found["rows"]) == len(found["dots"]) == 5
    assert found["dots"] == pytest.approx(found["rows"], abs=1)
    assert found["rows"][1] - found["rows"][0] == pytest.approx(ROW_PX)
    audits = [audit_in_browser(path, tmp_path / f"profile{dark}", width, dark) for dark in (False, True)]
    assert [one.faults for one in audits] == [[], []]
