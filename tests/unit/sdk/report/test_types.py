"""What a page and its JSON say of the types of layers."""

from __future__ import annotations

import json
import math
from dataclasses import replace

from host.model.numeric_types import NumericTypes, TypedLayer
from host.model.quantisation import FrontPoint
from sdk.report.figures import deploy_json
from sdk.report.html import render
from tests.unit.compare.samples import result


def test_a_page_shows_the_types_of_layers_and_the_front_of_error_and_time() -> None:
    types = NumericTypes(
        "bf16",
        "bf16",
        0.05,
        "1 of 2 layers in bf16",
        (TypedLayer("<img>", True, 2e-5, 0.01), TypedLayer("head", False, 1e-5, math.inf)),
        (
            FrontPoint(0, 0.0, math.inf, estimate_s=1e-3),
            FrontPoint(1, 0.5, 0.01, taken=True, estimate_s=1.5e-3),
        ),
        2e-3,
        2,
    )
    one = replace(result(), types=types)
    page = render(one)
    assert "1 of 2 layers in bf16. Times are estimates" in page and "2 models were compiled" in page
    assert "<td><code>&lt;img&gt;</code></td><td>bf16</td>" in page and "<img>" not in page
    assert "<td><code>head</code></td><td>fp32</td>" in page
    data = deploy_json(one)["types"]
    assert [point["error"] for point in data["front"]] == [None, 0.01], "JSON has no infinity"
    assert [point["estimate_ms"] for point in data["front"]] == [1.0, 1.5] and data["single_ms"] == 2.0
    assert [layer["alone_error"] for layer in data["layers"]] == [0.01, None]
    json.dumps(data, allow_nan=False)
    assert deploy_json(result())["types"] is None
    assert "types of the layers" not in render(result()).split("<script")[0]


def test_a_sentence_that_begins_with_a_type_keeps_its_name() -> None:
    types = NumericTypes("fp32", "bf16", 0.05, "fp32: no layer multiplies constant weights")
    assert "<p>fp32: no layer multiplies" in render(replace(result(), types=types))
    mixed = replace(types, dtype="bf16", why="all 2 layers in bf16")
    assert "<p>All 2 layers in bf16. Times" in render(replace(result(), types=mixed))
