"""The first sentence of a page, and the names in its tables."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from host.model import SIMULATION, Energy, Layer
from sdk.cli.printing import print_deployment
from sdk.model import Deployment
from sdk.report.compared import headline
from sdk.report.figures import deploy_json
from sdk.report.html import render
from tests.unit.compare.samples import result


def test_the_page_begins_with_what_was_measured_where_nothing_was_gained() -> None:
    one = result()
    assert headline(replace(one, ratios={})) == "2.000 ms a run by tvm on local, verified"
    library = replace(one, choice=replace(one.choice, backend="onnxruntime"))
    assert headline(library) == "3.000 ms a run by onnxruntime on local, verified"
    assert headline(replace(one, ratios={}, context=64)) == "500 tokens/s on local, verified"
    slow = replace(one, ratios={"onnxruntime": (0.0047, 0.0041, 0.12)})
    assert headline(slow).startswith("0.0047 (0.0041 to 0.12) times as fast as onnxruntime")
    large = replace(one, ratios={"torch": (531.79, 75.881, 3727.2)})
    assert headline(large).startswith("532 (75.88 to 3,727) times as fast as torch")


def test_names_of_kernels_fold_at_their_words_and_are_text() -> None:
    one = result()
    named = replace(one, tasks=(replace(one.tasks[0], name="fused_packed_<b>"), *one.tasks[1:]))
    assert "<code>fused_<wbr>packed_<wbr>&lt;b&gt;</code>" in render(named)


def test_names_of_layers_fold_at_their_modules_and_are_text() -> None:
    one = result()
    layer = Layer(0, "/stages.0/blocks_1/<b>", "Conv")
    named = replace(one, tasks=(replace(one.tasks[0], layers=(layer,)), *one.tasks[1:]))
    folded = "/stages.<wbr>0/<wbr>blocks_<wbr>1/<wbr>&lt;b&gt;"
    assert f'<td class="names">{folded}</td>' in render(named)


@pytest.mark.parametrize(
    ("installed", "peer", "quotient"), [("tvm", "onnxruntime", "1.75"), ("onnxruntime", "tvm", "0.57")]
)
def test_the_table_of_engines_has_the_ratio_of_the_headline(installed: str, peer: str, quotient: str) -> None:
    """That of rounds in pairs, which is another number than the quotient of the medians, 1.5."""
    one = result()
    with_ratio = replace(
        one, ratios={"onnxruntime": (1.75, 1.7, 1.8)}, choice=replace(one.choice, backend=installed)
    )
    rows = re.findall(
        r"<tr><td>([a-z]+)</td>\s*(?:<td[^>]*>[^<]*</td>){4}<td class=\"number\">(\d\.\d\d)</td>",
        render(with_ratio),
    )
    assert dict(rows)[installed] == "1.00"
    assert dict(rows)[peer] == quotient


def test_figures_of_a_simulated_board_say_so_and_those_of_a_board_do_not() -> None:
    measured = Energy("simulated", 0.01, None, "ina226 (VIN)", boundary="input")
    board = result(measured)
    page, simulated = render(board), render(replace(board, timing=SIMULATION))
    assert "on the device's own clock" in unescape(page) and "simulat" not in page.split("<h2>Energy")[0]
    text = unescape(simulated)
    assert "on the device's own clock" not in text and "on the clock of a simulation" in text
    assert "2 cores, 1 GiB of memory (of the host, where the programs run)" in text
    for title in ("latency, median", "energy of a run"):
        assert f">{title}<" in page
        assert f">{title}<" not in text and f">simulated {title}<" in text
    for title in ("Latency beside the peers", "Time per kernel and who made it", "Energy"):
        assert f"<h2>{title}</h2>" in page
        assert f"<h2>{title}</h2>" not in text and f"<h2>Simulated {title[0].lower()}{title[1:]}</h2>" in text
    assert "simulated by ina226" in text and "measured on the device" not in text


def test_the_arithmetic_of_a_language_model_is_that_of_a_step() -> None:
    """Kernels of prompts and drafts do not run in one, and have no time in it."""
    one = result()
    prompt = replace(one.tasks[0], name="fused_prompt", flops=1e12, latency_us=None)
    step = replace(one, tasks=(*one.tasks, prompt), context=64)
    assert step.flops == sum(task.weight * task.flops for task in one.tasks if task.latency_us)
    assert 0 < (step.flops or 0) < 1e12
    untimed = tuple(replace(task, latency_us=None) for task in step.tasks)
    assert replace(step, tasks=untimed).flops is None


def test_what_the_verification_says_nothing_about_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    remark = "output y is 0 throughout in all of the golden cases: there, the verification says nothing"
    usual = result()
    ours = usual.contenders["tvm"]
    assert ours.verification is not None
    told = replace(ours, verification=replace(ours.verification, remark=remark))
    one = replace(usual, contenders={**usual.contenders, "tvm": told})
    assert f"Verification: {remark}." in render(one) and "Verification: " not in render(usual)
    assert deploy_json(one)["verify"]["remark"] == remark and deploy_json(usual)["verify"]["remark"] == ""
    for deployed, said in ((one, True), (usual, False)):
        print_deployment(Deployment(deployed, Path("report.html")))
        assert (f"\n          {remark}\n" in capsys.readouterr().out) is said
