"""What checkers of pages look at, in a browser: contrast, headings, names of pictures, requests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.browser import measured_in_browser

# WCAG 2.2, 1.4.3 (AA), for text of any size.
LEAST_CONTRAST = 4.5

_AUDIT = """
const numbers = text => {
  const all = text.match(/[0-9.]+/g).map(Number);
  return all.length > 3 ? all : [...all, 1];
};
const linear = value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
const luminance = ([r, g, b]) =>
  0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
const contrast = (one, other) => {
  const [high, low] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
};
const style = element => view.getComputedStyle(element);
const ground = element => {
  for (let one = element; one; one = one.parentElement) {
    const colour = numbers(style(one).backgroundColor);
    if (colour[3] > 0) return colour;
  }
  return [255, 255, 255, 1];
};
// A letter on a bar has a colour of its own, and the bar stands before it.
const bar = element => {
  const fill = element.getAttribute("fill");
  if (!element.closest("svg") || !fill || fill === "currentColor") return null;
  let one = element.previousElementSibling;
  while (one && one.getAttribute("class") !== "bar") one = one.previousElementSibling;
  return one && numbers(style(one).fill);
};
const walker = page.createTreeWalker(page.body, view.NodeFilter.SHOW_TEXT), contrasts = [];
while (walker.nextNode()) {
  const text = walker.currentNode.data.trim(), element = walker.currentNode.parentElement;
  if (!text || element.closest("script, style, title") || !element.getClientRects().length) continue;
  const colour = numbers(element.closest("svg") ? style(element).fill : style(element).color);
  contrasts.push([text.slice(0, 60), contrast(colour, bar(element) || ground(element))]);
}
const all = selector => [...page.querySelectorAll(selector)];
const ids = all("[id]").map(one => one.id);
const named = one =>
  one.getAttribute("aria-label") || (one.querySelector(":scope > title") || {}).textContent;
return {
  dark: view.matchMedia("(prefers-color-scheme: dark)").matches,
  title: page.title, language: root.lang,
  viewport: (page.querySelector("meta[name=viewport]") || {}).content || "",
  headings: all("h1, h2, h3, h4, h5, h6").map(one => Number(one.tagName[1])),
  unnamed: all("svg").filter(one => one.getAttribute("role") !== "img" || !named(one)).length +
    all("img").filter(one => !one.alt).length,
  repeated_ids: ids.filter((one, index) => ids.indexOf(one) !== index),
  requests: [...view.performance.getEntriesByType("resource").map(one => one.name),
    ...all("[src], link[href]").map(one => one.getAttribute("src") || one.getAttribute("href"))
      .filter(address => !address.startsWith("data:"))],
  scripts: all("script").filter(one => one.type !== "application/json").length,
  width: root.clientWidth, scroll_width: root.scrollWidth,
  contrasts: contrasts,
  boxes: all("h1, h2, h3, p, table, figure, dl, ul, pre").map(one => {
    const box = one.getBoundingClientRect();
    return [box.left, box.top, box.width, box.height].map(Math.round);
  }),
};
"""


@dataclass(frozen=True)
class Audit:
    """A page as a browser of one width and colour scheme shows it.

    Attributes:
        dark: whether the page was shown to a reader who prefers dark pages.
        title, language, viewport: what the page says of itself.
        headings: levels in the order of the page.
        unnamed: pictures without a name for those who do not see them.
        repeated_ids: names of elements that are given twice.
        requests: addresses that were asked for, or would be.
        scripts: that would run.
        width, scroll_width: as of `tests.browser.Layout`.
        contrasts: each text that is seen, and its contrast with what it stands on.
        boxes: left, top, width and height in pixels of the page's parts.
    """

    dark: bool
    title: str
    language: str
    viewport: str
    headings: list[int]
    unnamed: int
    repeated_ids: list[str]
    requests: list[str]
    scripts: int
    width: int
    scroll_width: int
    contrasts: list[list[Any]]
    boxes: list[list[int]]

    @property
    def faults(self) -> list[str]:
        """What a checker would say; empty for a page without faults."""
        steps = zip([0, *self.headings], self.headings, strict=False)
        checks = {
            "no title": not self.title,
            "no language": not self.language,
            "no viewport": "width=device-width" not in self.viewport,
            f"headings {self.headings}": self.headings.count(1) != 1
            or any(after > before + 1 for before, after in steps),
            f"{self.unnamed} pictures without a name": self.unnamed > 0,
            f"ids given twice: {self.repeated_ids}": bool(self.repeated_ids),
            f"requests: {self.requests}": bool(self.requests),
            f"{self.scripts} scripts": self.scripts > 0,
            f"{self.scroll_width} pixels wide in {self.width}": self.scroll_width > self.width,
            "no text": not self.contrasts,
        }
        faint = [f"contrast {ratio:.2f}: {text}" for text, ratio in self.contrasts if ratio < LEAST_CONTRAST]
        return [text for text, found in checks.items() if found] + faint


def audit_in_browser(report: Path, profile: Path, width: int = 400, dark: bool = False) -> Audit:
    """Look at a page in a window of a width in pixels, with light or dark colours."""
    return Audit(**measured_in_browser(report, profile, width, _AUDIT, dark))
