"""Pages pass what checkers of pages look at, for readers of light and of dark pages, on a phone.

Their templates are compiled before what they show is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import pytest

from sdk.report import page as pages
from sdk.report.html import StagedReport, render
from sdk.report.kernels.explain import render_explanation
from tests.page_audit import audit_in_browser
from tests.unit.compare.samples import result, task
from tests.unit.sdk.report.power_result import deployment, sweep
from tests.unit.sdk.report.test_kernels import LAYERS, explanation
from tests.unit.sdk.report.test_report import quantisation


def _report() -> str:
    tasks = tuple(
        replace(task(f"kernel_{source}", source, 2, 90.0), layers=LAYERS)
        for source in ("gensor", "tlm", "tree", "evolutionary", "random", "default")
    )
    explained = (explanation("dense", walks=True, latency_us=20.0), explanation("other"))
    whole = replace(
        deployment(sweep(cap_w=7.0)), quantisation=quantisation(), tasks=tasks, explained=explained
    )
    return render(whole)


def _explanation() -> str:
    return render_explanation(explanation("dense", walks=True, latency_us=20.0))


@pytest.mark.parametrize("page", [_report, _explanation])
def test_pages_pass_what_checkers_look_at_in_light_and_dark(page: Callable[[], str], tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page())
    light, dark = (audit_in_browser(path, tmp_path / f"profile{d}", dark=d) for d in (False, True))
    assert (light.dark, dark.dark) == (False, True)
    assert light.faults == dark.faults == []
    # The colours are others, and nothing else is.
    assert light.contrasts != dark.contrasts and light.boxes == dark.boxes


def test_a_page_with_faults_is_told_them(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(
        '<!doctype html><meta name="viewport" content="width=device-width"><title>A page</title>'
        "<style>@media (prefers-color-scheme: dark) { body { background: #222; color: #333 } }</style>"
        '<h1>One</h1><h3 id="a">Three</h3><p id="a" style="color: #bbb">faint</p>'
        '<div style="width: 900px">wide</div>'
        '<svg width="90" height="20"><path class="bar" d="M0 0H90V20H0Z" fill="#0072b2"/>'
        '<text x="2" y="12" fill="#000000">bar</text></svg><img src="http://example.org/x.png" alt="x">'
        "<script>1</script>"
    )
    light, dark = (audit_in_browser(path, tmp_path / f"profile{d}", dark=d).faults for d in (False, True))
    told = " ".join(light)
    for fault in (
        "no language",
        "headings [1, 3]",
        "1 pictures without",
        "given twice: ['a']",
        "example.org",
    ):
        assert fault in told
    for fault in ("1 scripts", "pixels wide in 400", "contrast 1.92: faint", "contrast 4.05: bar"):
        assert fault in told
    assert "no title" not in told and "no viewport" not in told
    assert any(fault.startswith("contrast 1.") and fault.endswith("One") for fault in dark)


def test_the_templates_of_a_report_are_compiled_before_the_deployment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the process that reads the model works, instead of after the measurements."""
    pages._environment.cache_clear()
    compiled: list[str | None] = []
    compile_template = jinja2.Environment.compile

    def noted(self: jinja2.Environment, source: Any, name: str | None = None, *given: Any) -> Any:
        compiled.append(name)
        return compile_template(self, source, name, *given)

    monkeypatch.setattr(jinja2.Environment, "compile", noted)
    with StagedReport(tmp_path / "report.html") as report:
        before = list(compiled)
        report.write(result())
    assert "report.html.j2" in before
    assert compiled == before
