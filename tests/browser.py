"""Opens a report in a headless browser and counts what its scripts drew."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

_CHROMIUM = (
    "chromium",
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Whatever the page would load fails at once: it has to be complete in itself.
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--window-size=1000,3000",
    "--virtual-time-budget=20000",
)

_OUTLINES = {
    "box": r'<path class="box"[^>]* d="M[^"]{9,}"',
    "point": r'<path class="point"[^>]* d="M[^"]{9,}"',
    "line": r'<path class="js-line"[^>]* d="M[^"]{9,}"',
    "bar": r'<g class="point"><path [^>]*d="M[^"]{5,}Z"',
}


def page_in_browser(report: Path, profile: Path) -> str:
    """The page's elements after its scripts ran.

    Args:
        report: the file.
        profile: folder for the browser's own files, new.
    """
    command = [*_CHROMIUM, f"--user-data-dir={profile}", "--dump-dom", report.absolute().as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def drawn(page: str, chart: str, mark: str) -> int:
    """Marks of one kind ("box", "point", "line", "bar") with an outline, inside one chart's element."""
    begin = page.index(f'id="chart-{chart}"')
    ends = [page.find(text, begin + 1) for text in ("<h2>", '<div id="chart-', "<script")]
    part = page[begin : min(end for end in ends if end > 0)]
    return len(re.findall(_OUTLINES[mark], part))
