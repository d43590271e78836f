"""Self-contained pages: one HTML file with its charts, without scripts."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from host.files import check_output_file, partial_of
from sdk.report.charts import Chart
from sdk.report.drawing.figure import inline
from sdk.text import data_without_host_paths, visible_lines, without_host_paths

if TYPE_CHECKING:
    import jinja2

# What the figures begin with, in figures.html.j2.
_FIGURES = '<script type="application/json" id="figures">'
# Behind these a name may go on in the next line.
_WORD_ENDS = re.compile(r"(?<=\S[_./:])")


class StagedPage:
    """A page in a temporary file, which is renamed to its place at the end or removed.

    Args:
        path: of the page.
        option: with which the user names another place.

    Raises:
        UserError: it cannot be written there.
    """

    def __init__(self, path: Path, option: str = "--report") -> None:
        check_output_file(path, option)
        self.path = path
        self._partial = partial_of(path)
        self._made: tuple[Path, ...] = ()

    def __enter__(self) -> StagedPage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from host.deploy.folders import remove_empty

        placed = False
        try:
            if kind is None:
                self._partial.replace(self.path)
                placed = True
        finally:
            if not placed:
                self._partial.unlink(missing_ok=True)
                remove_empty(self._made)

    def write(self, text: str) -> None:
        """Write the page beside its place.

        Raises:
            DeviceFull: no space left.
        """
        from host.deploy.folders import make_folders
        from host.files import writing

        with writing(self.path):
            self._made = make_folders(self.path.parent)
            self._partial.write_text(text, encoding="utf-8")


def load_template(name: str) -> None:
    """Compile a template of this package, and those that it includes, for all pages of this process.

    Args:
        name: of the file.
    """
    from jinja2 import meta

    environment = _environment()
    assert environment.loader is not None
    source, _, _ = environment.loader.get_source(environment, name)
    for one in (name, *meta.find_referenced_templates(environment.parse(source))):
        if one is not None:
            environment.get_template(one)


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("sdk.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
    )


def render_page(
    template: str,
    charts: Mapping[str, Chart | None],
    figures: Mapping[str, Any] | None = None,
    **values: Any,
) -> str:
    """A template of this package as text.

    Args:
        template: file name.
        charts: by name; None leaves a chart out.
        figures: the result as plain data, embedded in the page for programs; None for none.
        values: further values of the template.
    """
    known = {name: chart for name, chart in charts.items() if chart is not None}
    kept = None if figures is None else _script_json(data_without_host_paths(figures))
    return (
        _environment()
        .get_template(template)
        .render(
            charts=known,
            chart=lambda name: _drawn(name, known.get(name)),
            figures=kept,
            foldable=_foldable,
            **values,
        )
    )


def figures_in(page: str) -> dict[str, Any] | None:
    """The result that `render_page` embedded in a page; None if there is none."""
    begin = page.find(_FIGURES)
    if begin < 0:
        return None
    end = page.index("</script>", begin)
    kept = json.loads(page[begin + len(_FIGURES) : end])
    return kept if isinstance(kept, dict) else None


def _drawn(name: str, chart: Chart | None) -> Any:
    """A chart's element; nothing where there is no chart."""
    import markupsafe

    if chart is None:
        return markupsafe.Markup("")
    return markupsafe.Markup(f'<figure class="chart" id="chart-{name}">{inline(chart)}</figure>')


def _foldable(name: str) -> Any:
    """Names of kernels or layers, whose lines end behind words where they are longer than their column."""
    import markupsafe

    # Each part is escaped by itself: a break inside of `&lt;` would show it as it is.
    parts = _WORD_ENDS.split(visible_lines(without_host_paths(name)))
    return markupsafe.Markup("<wbr>").join(parts)


def _shown(value: Any) -> Any:
    """The printable form of a value, before the escaping for HTML: hidden characters are shown."""
    import jinja2
    import markupsafe

    # Undefined is what `"s" if several` gives for one; it prints as nothing.
    return (
        value
        if isinstance(value, (markupsafe.Markup, jinja2.Undefined))
        else visible_lines(without_host_paths(str(value)))
    )


def _script_json(content: Mapping[str, Any]) -> str:
    """JSON that is safe inside a script element."""
    return (
        json.dumps(content).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    )
