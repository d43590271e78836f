"""Charts as small grey pictures, and the committed ones, which `python -m tests.pictures` writes again.

Letters are left out, since fonts differ from machine to machine; where marks and axes lie is computed by the
product and the same everywhere.
"""

from __future__ import annotations

import html
import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from tests.browser import page_in_browser

REFERENCES = Path(__file__).parent / "unit" / "sdk" / "report" / "pictures.json"
COLUMNS, ROWS = 48, 32
# Mean and greatest difference of two pictures, of 255, that smoothing of edges may make.
MEAN_TOLERANCE, CELL_TOLERANCE = 0.75, 24

# Drawn large first, then averaged here: how a browser reduces a picture is its own affair.
_DRAW = """
const sources = JSON.parse(document.querySelector("#sources").textContent), found = {};
const draw = (name, image) => {
  const canvas = document.createElement("canvas");
  canvas.width = %(columns)d * 16; canvas.height = %(rows)d * 16;
  const context = canvas.getContext("2d");
  context.fillStyle = "white"; context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  const data = context.getImageData(0, 0, canvas.width, canvas.height).data, cells = [];
  for (let row = 0; row < %(rows)d; row++) for (let column = 0; column < %(columns)d; column++) {
    let sum = 0;
    for (let y = 0; y < 16; y++) for (let x = 0; x < 16; x++) {
      const at = 4 * ((row * 16 + y) * canvas.width + column * 16 + x);
      sum += 0.299 * data[at] + 0.587 * data[at + 1] + 0.114 * data[at + 2];
    }
    cells.push(Math.round(sum / 256));
  }
  found[name] = cells;
  if (Object.keys(found).length === Object.keys(sources).length)
    document.querySelector("pre").textContent = JSON.stringify(found);
};
for (const [name, source] of Object.entries(sources)) {
  const image = new Image();
  image.onload = () => draw(name, image);
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(source);
}
"""


def grey_pictures(drawings: Mapping[str, str], folder: Path) -> dict[str, bytes]:
    """Each drawing as `ROWS` rows of `COLUMNS` bytes, 0 black and 255 white, without its letters.

    Args:
        drawings: SVG by name.
        folder: for files.
    """
    folder.mkdir(exist_ok=True)
    page = folder / "pictures.html"
    sources = json.dumps({name: _without_letters(drawing) for name, drawing in drawings.items()})
    page.write_text(
        '<!doctype html><meta charset="utf-8"><pre></pre>'
        f'<script type="application/json" id="sources">{sources.replace("<", chr(92) + "u003c")}</script>'
        f"<script>{_DRAW % {'columns': COLUMNS, 'rows': ROWS}}</script>",
        encoding="utf-8",
    )
    found = re.search(r"<pre>(.*?)</pre>", page_in_browser(page, folder / "profile"), re.S)
    assert found is not None and found[1], "nothing was drawn"
    cells = json.loads(html.unescape(found[1]))
    return {name: bytes(cells[name]) for name in drawings}


def difference(one: bytes, other: bytes) -> tuple[float, int]:
    """Mean and greatest difference of two pictures."""
    apart = [abs(a - b) for a, b in zip(one, other, strict=True)]
    return sum(apart) / len(apart), max(apart)


def alike(one: bytes, other: bytes) -> bool:
    """Whether two pictures show the same."""
    mean, greatest = difference(one, other)
    return mean <= MEAN_TOLERANCE and greatest <= CELL_TOLERANCE


def references() -> dict[str, bytes]:
    """The committed pictures."""
    return {name: bytes.fromhex("".join(rows)) for name, rows in json.loads(REFERENCES.read_text()).items()}


def _without_letters(drawing: str) -> str:
    root = ElementTree.fromstring(drawing)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.rpartition("}")[2] in ("text", "title"):
                parent.remove(child)
    tag = root.tag.rpartition("}")[2]
    space = "{http://www.w3.org/2000/svg}"
    for one in root.iter():
        one.tag = space + one.tag.rpartition("}")[2]
    assert tag == "svg"
    width, height = root.get("viewBox", "").split()[2:]
    root.set("width", width)
    root.set("height", height)
    ElementTree.register_namespace("", space.strip("{}"))
    return ElementTree.tostring(root, encoding="unicode")


def main() -> None:
    """Write the references again."""
    from tests.unit.sdk.report.drawings import drawings

    with tempfile.TemporaryDirectory() as folder:
        made = grey_pictures(drawings(), Path(folder))
    lines = {
        name: [cells[begin : begin + COLUMNS].hex() for begin in range(0, len(cells), COLUMNS)]
        for name, cells in made.items()
    }
    REFERENCES.write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    main()
