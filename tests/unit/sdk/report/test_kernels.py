"""Kernels in a report: what they compute, their place under the ceilings, and their walks."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from host.compile.explanation import Explanation, explained
from host.compile.stored_tasks.file import StoredTask
from host.gensor import Gensor
from host.manifest import Kernel, Manifest
from host.model import DeviceProfile, Layer
from host.schedules import space_for
from sdk.report.figures import deploy_json
from sdk.report.html import render, write_report
from sdk.report.kernels.layers import MOST_LAYERS, layer_tree
from sdk.report.page import figures_in
from targets.nvidia import ORIN_NANO
from tests.browser import LARGEST_PAGE_BYTES, drawn, page_in_browser
from tests.unit.compare.samples import result, task
from tests.unit.schedules import functions

LAYERS = (
    Layer(0, "/stem/conv", "Conv", "net.py:7"),
    Layer(1, "/stem/act", "Relu"),
    Layer(2, "/blocks/blocks.0/<b>", "Add"),
    Layer(3, "/blocks/blocks.1/\x1b[31m", "Add"),
    Layer(4, "head", "Gemm"),
)


def explanation(name: str, walks: bool = False, latency_us: float | None = None) -> Explanation:
    """Of a dense layer for a made-up board."""
    board = functions.board()
    hardware = replace(board.hardware, source="declared")
    task = functions.task(functions.dense(64, 192, 96), name)
    profile = DeviceProfile("desk", board, hardware, 1)
    space = space_for(task, hardware, 1)
    (candidate,) = Gensor().propose(space, profile, (), 1, seed=0)
    stored = StoredTask(task, profile, 0, candidate.estimate_s, "", candidate.space_version)
    kernel = Kernel(
        name=name,
        task=task.workload_hash,
        weight=1,
        source="gensor",
        rule=candidate.rule,
        decisions=dict(candidate.decisions),
        latency_us=latency_us,
    )
    return explained(Manifest.model_construct(name="net"), kernel, stored, walks)


def test_a_page_names_the_gpu_that_computes() -> None:
    kernel = explanation("dense")
    hardware = replace(kernel.roofline.hardware, gpu=ORIN_NANO)
    on_gpu = replace(kernel, roofline=replace(kernel.roofline, hardware=hardware))
    one = replace(result(), explained=(on_gpu,))
    assert one.processor == f"{ORIN_NANO.name} beside {one.machine.cpu_name}"
    assert f"<dd>{ORIN_NANO.name}, 2 cores, 1 GiB of memory</dd>" in render(one)
    # A library that was taken in its place runs on the CPU.
    library = replace(one, choice=replace(one.choice, backend="onnxruntime"))
    assert library.processor == replace(one, explained=(kernel,)).processor == one.machine.cpu_name


def test_kernels_stand_under_the_ceilings_of_their_board(tmp_path: Path) -> None:
    kernels = (explanation("dense", walks=True, latency_us=20.0), explanation("other"))
    report = tmp_path / "report.html"
    write_report(replace(result(), explained=kernels), report)
    page = page_in_browser(report, tmp_path / "profile")
    roofline = kernels[0].roofline
    assert drawn(page, "roofline", "line") == 1 + len(roofline.bandwidths)
    assert drawn(page, "roofline", "point") == 2
    assert "gensor, estimated" in page, "the one that was not measured"
    assert "as the file of the board declares them; nothing was calibrated" in page
    assert drawn(page, "walk-1", "line") > 1 and 'id="chart-walk-2"' not in page
    assert all(f"<th>{name}</th>" in page for name in kernels[0].kernel.decisions)
    data = deploy_json(replace(result(), explained=kernels))["roofline"]
    assert data["peak_flops"] == roofline.peak_flops and data["source"] == "declared"
    assert data["kernels"][0]["flops_per_byte"] == pytest.approx(
        2 * 64 * 192 * 96 / (4 * (64 * 96 + 192 * 96 + 64 * 192)), rel=0.1
    )
    assert [one["measured_us"] for one in data["kernels"]] == [pytest.approx(20.0), None]
    assert deploy_json(result())["roofline"] is None


def test_layers_are_a_tree_of_modules_with_the_kernels_that_compute_them() -> None:
    tasks = (
        replace(task("conv", "gensor", 1, 5.0), layers=LAYERS[:2]),
        replace(task("add", "gensor", 2, 5.0), layers=LAYERS[2:4]),
        replace(task("dense", "gensor", 1, 5.0), layers=LAYERS[1:2] + LAYERS[4:]),
        task("nameless", "gensor", 1, 5.0),
    )
    tree = layer_tree(tasks)
    assert tree is not None and tree.count == 5 and list(tree.modules) == ["stem", "blocks"]
    assert [(name, kernels) for name, _, kernels in tree.modules["stem"].layers] == [
        ("conv", ("conv",)),
        ("act", ("conv", "dense")),
    ]
    assert list(tree.modules["blocks"].modules) == ["blocks.0", "blocks.1"]
    assert [name for name, _, _ in tree.layers] == ["head"]
    page = render(replace(result(), tasks=tasks)).split("<script")[0]
    assert '<td class="names">/stem/<wbr>conv, /stem/<wbr>act</td>' in page
    assert "<code>&lt;b&gt;</code> Add" in page
    assert "net.py:7" in page and "\\x1b[31m" in page and "\x1b" not in page
    assert "Layers of the model" not in render(result()).split("<script")[0]
    data = deploy_json(replace(result(), tasks=tasks))["tasks"]
    assert data[0]["layers"][0] == {
        "position": 0,
        "name": "/stem/conv",
        "operator": "Conv",
        "source": "net.py:7",
    }
    assert data[3]["layers"] == []


def test_a_page_of_very_many_layers_is_cut_off_and_says_so() -> None:
    layers = tuple(
        Layer(i, f"/model/layers.{i // 10}/{'deep/' * 30}part_{i % 10}", "MatMul") for i in range(9000)
    )
    one = replace(result(), tasks=(replace(task("dense", "gensor", 9000, 5.0), layers=layers),))
    page = render(one)
    assert len(page.encode()) < LARGEST_PAGE_BYTES
    assert f"{9000 - MOST_LAYERS} more are left out here" in page
    kept = figures_in(page)
    assert kept is not None and kept["tasks"][0]["layers_in_all"] == 9000
    assert len(kept["tasks"][0]["layers"]) == MOST_LAYERS
    assert len(deploy_json(one)["tasks"][0]["layers"]) == 9000


def test_a_card_says_how_the_kernels_of_a_gpu_are_started() -> None:
    assert "launch of a run" not in render(result())
    one = result().contenders["tvm"]
    assert one.measurement is not None
    measurement = replace(
        one.measurement, conditions={"launch": "kernel by kernel: <sort> runs on the processor"}
    )
    page = render(
        replace(result(), contenders={**result().contenders, "tvm": replace(one, measurement=measurement)})
    )
    found = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page))
    assert found["launch of a run"] == "kernel by kernel: &lt;sort&gt; runs on the processor"
