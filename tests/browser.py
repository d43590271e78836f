"""Opens a report in a headless browser and counts what is drawn."""

from __future__ import annotations

import html
import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

# What a page takes at most; most take a tenth of it.
LARGEST_PAGE_BYTES = 1_500_000

_OUTLINES = {
    kind: rf'<path class="{kind}"[^>]* d="M[^"]{{5,}}"' for kind in ("box", "samples", "point", "line", "bar")
}


# As readers set it for all pages; 1 is light.
_SCHEME = "--blink-settings=preferredColorScheme={}"


def page_in_browser(report: Path, profile: Path, dark: bool = False) -> str:
    """The page's elements as a browser reads them.

    Args:
        report: the file.
        profile: folder for the browser's own files, new.
        dark: whether the reader prefers dark pages.
    """
    scheme = _SCHEME.format(0 if dark else 1)
    command = [*_CHROMIUM, scheme, f"--user-data-dir={profile}", "--dump-dom", report.absolute().as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def photograph(report: Path, profile: Path, size: tuple[int, int], dark: bool = False) -> bytes:
    """The page's upper left corner as a PNG file.

    Args:
        report: the file.
        profile: folder for the browser's own files, new.
        size: pixels across and down.
        dark: whether the reader prefers dark pages.
    """
    profile.mkdir()
    made = profile / "page.png"
    options = [_SCHEME.format(0 if dark else 1), "--hide-scrollbars", f"--window-size={size[0]},{size[1]}"]
    command = [*_CHROMIUM, *options, f"--user-data-dir={profile}", f"--screenshot={made}"]
    subprocess.run([*command, report.absolute().as_uri()], capture_output=True, timeout=120, check=True)
    return made.read_bytes()


@dataclass(frozen=True)
class Layout:
    """How a page lies in a window.

    Attributes:
        width: pixels of the window without its scroll bar.
        scroll_width: pixels that the content takes across; more than `width` where the page must be moved.
        charts: names of the charts that are seen, once for each drawing.
        smallest_px: size of the smallest letters in the charts, as seen.
        outside: texts of charts that lie partly outside of their drawing.
    """

    width: int
    scroll_width: int
    charts: tuple[str, ...]
    smallest_px: float
    outside: tuple[str, ...]


_MEASURE = """
const seen = [...page.querySelectorAll("figure.chart svg")].filter(svg => svg.clientWidth > 0);
const texts = seen.flatMap(svg => [...svg.querySelectorAll("text")].map(text => [svg, text]));
const outside = texts.filter(([svg, text]) => {
  const frame = svg.getBoundingClientRect(), box = text.getBoundingClientRect();
  return box.left < frame.left - 1 || box.right > frame.right + 1 ||
    box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
}).map(([svg, text]) => text.firstChild.data);
const sizes = texts.map(([svg, text]) => parseFloat(page.defaultView.getComputedStyle(text).fontSize) *
  svg.getBoundingClientRect().width / svg.viewBox.baseVal.width);
return {width: root.clientWidth, scroll_width: root.scrollWidth, charts: seen.map(svg => svg.parentNode.id),
  smallest_px: Math.min(...sizes), outside: outside};
"""


def layout_in_browser(report: Path, profile: Path, width: int) -> Layout:
    """How a page lies in a window of a width in pixels, which may be less than a browser's own window has."""
    measured = measured_in_browser(report, profile, width, _MEASURE)
    return Layout(
        **{key: tuple(value) if isinstance(value, list) else value for key, value in measured.items()}
    )


def measured_in_browser(
    report: Path, profile: Path, width: int, script: str, dark: bool = False
) -> dict[str, Any]:
    """What a script finds out of a page that lies in a frame.

    Args:
        report: the page.
        profile: folder for the browser's own files, new.
        width: of the frame in pixels.
        script: body of a function in JavaScript of `page` (the document), `root` (its element) and `view`
            (its window), which returns an object.
        dark: whether the reader prefers dark pages.
    """
    frame = report.with_suffix(".frame.html")
    inner = html.escape(report.read_text(encoding="utf-8"), quote=True)
    style = f"width:{width}px;height:900px;border:0;color-scheme:{'dark' if dark else 'light'}"
    frame.write_text(
        '<!doctype html><meta charset="utf-8"><pre></pre>'
        f'<iframe style="{style}" srcdoc="{inner}"></iframe><script>'
        f"const measure = (page, root, view) => {{{script}}};"
        "onload = () => { const page = document.querySelector('iframe').contentDocument;"
        "const found = measure(page, page.documentElement, page.defaultView);"
        "document.querySelector('pre').textContent = JSON.stringify(found); }</script>",
        encoding="utf-8",
    )
    found = re.search(r"<pre>(.*?)</pre>", page_in_browser(frame, profile, dark), re.S)
    assert found is not None and found.group(1), "the page was not measured"
    measured: dict[str, Any] = json.loads(html.unescape(found.group(1)))
    return measured


def drawn(page: str, chart: str, mark: str) -> int:
    """Marks of a kind of `_OUTLINES` with an outline, inside of one chart's first drawing."""
    begin = page.index(f'id="chart-{chart}"')
    return len(re.findall(_OUTLINES[mark], page[begin : page.index("</svg>", begin)]))
