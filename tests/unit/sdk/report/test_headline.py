"""The first sentence of a page, and the names in its tables."""

from __future__ import annotations

from dataclasses import replace

from host.model import Layer
from sdk.report.compared import headline
from sdk.report.html import render
from tests.unit.compare.samples import result


def test_the_page_begins_with_what_was_measured_where_nothing_was_gained() -> None:
    one = result()
    assert headline(replace(one, ratios={})) == "2.000 ms a run by tvm on local, verified"
    library = replace(one, choice=replace(one.choice, backend="onnxruntime"))
    assert headline(library) == "3.000 ms a run by onnxruntime on local, verified"
    assert headline(replace(one, ratios={}, context=64)) == "500 tokens/s on local, verified"
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
