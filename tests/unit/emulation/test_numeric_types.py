"""Figures of numeric types on an emulated board."""

from __future__ import annotations

from benchmarks.emulation.numeric_types import figures_of, with_ratios


def test_figures_are_those_of_the_report() -> None:
    verify = {"max_rel_err": 0.01, "tolerance": 0.02, "passed": True, "message": ""}
    found = figures_of({"instructions": 50.0, "verify": verify, "backend": "tvm"})
    assert found == {"instructions": 50.0, "max_rel_err": 0.01, "tolerance": 0.02, "verified": True}


def test_ratios_are_to_single_precision_where_both_are_known() -> None:
    types = {"fp32": {"instructions": 200.0}, "fp16": {"instructions": 110.0}, "int8": {"instructions": None}}
    assert {name: one["ratio"] for name, one in with_ratios(types).items()} == {
        "fp32": 1.0,
        "fp16": 0.55,
        "int8": None,
    }
    assert with_ratios({"fp16": {"instructions": 110.0}})["fp16"]["ratio"] is None
