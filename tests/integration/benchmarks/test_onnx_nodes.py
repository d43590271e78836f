"""A twentieth of ONNX's node tests, all operators in turn; `python -m benchmarks.onnx_nodes` runs all."""

from __future__ import annotations

import pytest

from benchmarks.onnx_nodes.__main__ import summarise
from benchmarks.onnx_nodes.workers import run_cases

_SHARE, _SEED = 0.05, 0


@pytest.mark.timeout(1200)
def test_no_number_is_wrong() -> None:
    results = run_cases([], _SHARE, _SEED, workers=1, time_limit_s=240.0, options=[])
    found = {result["outcome"] for result in results}
    unfit = [one for one in results if one["outcome"] not in ("passed", "reason", "excluded")]
    assert not unfit and "passed" in found
    # What the compiler cannot express goes to ONNX Runtime, with a reason.
    assert all(one["detail"] for one in results if one["outcome"] == "reason")
    assert summarise(results)["passed_share"] > 0.85
