"""The picture of latency against measurements."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.curves import curves_of, main

ENTRY = {"curves": {"tlm": [0.0, 0.5, 1.0], "gensor": [1.0], "evolutionary": [[1, 0.25], [64, 1.0]]}}
_SVG = "{http://www.w3.org/2000/svg}"


def test_latencies_are_the_inverse_of_speed_and_unknown_ones_are_left_out() -> None:
    curves = curves_of(ENTRY)
    assert curves["TLM"] == [(2.0, 2.0), (3.0, 1.0)]
    assert curves["evolutionary search"] == [(1.0, 4.0), (64.0, 1.0)]


def test_a_panel_a_network_and_a_line_a_method(tmp_path: Path) -> None:
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    one.write_text(json.dumps({"networks": {"a & b": ENTRY, "c": ENTRY, "failed": {"error": "lost"}}}))
    other.write_text(json.dumps({"networks": {"c": {"curves": {"tlm": [1.0, 1.25]}}}}))
    out = tmp_path / "curves.svg"
    assert main([str(one), "-o", str(out), "--beside", f"TLM, fine-tuned={other}"]) == 0
    root = ElementTree.fromstring(out.read_text())
    texts = [element.text for element in root.iter(f"{_SVG}text")]
    assert {"a & b", "c", "TLM, fine-tuned", "evolutionary search"} <= set(texts)
    assert "failed" not in texts
    lines = [path.get("d", "") for path in root.iter(f"{_SVG}path") if path.get("fill") == "none"]
    assert len(lines) == 3 + 4
    # Latency falls with the measurements: upwards on the page is slower.
    heights = [float(y) for y in re.findall(r"(?:M[\d.]+ |V)([\d.]+)", lines[0])]
    assert heights == sorted(heights) and heights[0] < heights[-1]
