"""A run of a model as a list of calls beside lanes, in which their results go to the calls that read them.

A lane is free again below the last call that reads what is in it, and that call's own result takes it: so a
chain of layers is one straight line, and a branch is a line beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from device_agent.contract.text import printable
from sdk.report.charts import COLOURS, SOURCE_COLOURS
from sdk.report.drawing.elements import Element, add, digits

if TYPE_CHECKING:
    from host.deploy import DeployResult, TaskOutcome
    from host.model import CallGraph, KernelCall, Layer

# Calls that a page shows; a longer run is cut off, and the page says so.
MOST_CALLS = 400
# Height of a row, and pixels that the lanes take together at most.
ROW_PX = 44
_LANE_PX, _WIDEST_PX = 14.0, 112.0
_LEAST_PX, _MOST_PX = 3.0, 8.0
_NAMED, _CHARACTERS = 6, 80


@dataclass(frozen=True)
class Row:
    """One row beside the lanes.

    Attributes:
        within: the modules that its layers have in common, with a separator at the end; "" for none.
        names: of its layers inside of `within`.
        more: layers that are not named.
        operators, source: of its layers.
        task: number of its kernel in the result; -1 for an input or the outputs.
        time_us: of the call; None where it was not measured.
        share: of the greatest time of all rows.
    """

    within: str
    names: tuple[str, ...]
    more: int = 0
    operators: str = ""
    source: str = ""
    task: int = -1
    time_us: float | None = None
    share: float = 0.0


@dataclass(frozen=True)
class Drawn:
    """A run on a page.

    Attributes:
        rows: inputs, calls, outputs.
        lanes: the picture beside them, an `svg` element.
        width: of the picture in pixels.
        left_out: calls that the page does not show.
    """

    rows: tuple[Row, ...]
    lanes: Any
    width: float
    left_out: int


def graph_of(result: DeployResult) -> Drawn | None:
    """The run of a deployed model; None where its calls are not known."""
    import markupsafe

    graph = result.calls
    if not graph.calls:
        return None
    names = [spec.name for spec in result.signature.inputs]
    shown = graph.calls[:MOST_CALLS]
    inputs = sorted({-1 - one for call in shown for one in call.reads if one < 0})
    places = {-1 - number: row for row, number in enumerate(inputs)}
    places |= {number: len(inputs) + number for number in range(len(shown))}
    whole = len(shown) == len(graph.calls)
    reads: list[list[int]] = [[] for _ in inputs]
    reads += [[places[one] for one in call.reads] for call in shown]
    tasks = {task.name: (number, task) for number, task in enumerate(result.tasks)}
    longest = max((task.latency_us or 0.0 for _, task in tasks.values()), default=0.0) or 1.0
    rows = [
        Row("", (names[number] if number < len(names) else f"state {number - len(names)}",))
        for number in inputs
    ]
    rows += [_row(call, tasks, longest) for call in shown]
    if whole:
        reads.append([places[one] for one in graph.outputs if one in places])
        rows.append(Row("", tuple(spec.name for spec in result.signature.outputs[:_NAMED])))
    svg, width = _lanes(reads, rows, [_colour(tasks.get(call.kernel)) for call in shown], len(inputs))
    drawing = markupsafe.Markup(ElementTree.tostring(svg, encoding="unicode"))
    return Drawn(tuple(rows), drawing, width, len(graph.calls) - len(shown))


def graph_json(graph: CallGraph, inputs: Sequence[str]) -> dict[str, Any] | None:
    """The calls as data; None where there are none."""
    if not graph.calls:
        return None
    return {
        "inputs": list(inputs),
        "calls": [
            {
                "kernel": call.kernel,
                "layers": [layer.position for layer in call.layers],
                "reads": list(call.reads),
            }
            for call in graph.calls
        ],
        "outputs": list(graph.outputs),
    }


def _row(call: KernelCall, tasks: Mapping[str, tuple[int, TaskOutcome]], longest: float) -> Row:
    number, task = tasks.get(call.kernel, (-1, None))
    time_us = task.latency_us if task is not None else None
    within, names = _inside(call.layers)
    if not names:
        names = (printable(call.kernel, _CHARACTERS),)
    operators = dict.fromkeys(printable(layer.operator, _CHARACTERS) for layer in call.layers)
    sources = dict.fromkeys(printable(layer.source, _CHARACTERS) for layer in call.layers if layer.source)
    return Row(
        within,
        names[:_NAMED],
        max(0, len(names) - _NAMED),
        ", ".join(list(operators)[:_NAMED]),
        ", ".join(list(sources)[:2]),
        number,
        time_us,
        (time_us or 0.0) / longest,
    )


def _inside(layers: Sequence[Layer]) -> tuple[str, tuple[str, ...]]:
    """What the names of layers have in common, and the rest of each: the operator where nothing is left."""
    texts = [printable(layer.name, _CHARACTERS) for layer in layers]
    if len(texts) < 2:
        return "", tuple(texts)
    separator = "/" if "/" in texts[0] else "."
    parts = [text.split(separator) for text in texts]
    common = 0
    while all(len(one) > common and one[common] == parts[0][common] for one in parts):
        common += 1
    within = "".join(part + separator for part in parts[0][:common])
    rest = [
        separator.join(one[common:]) or printable(layer.operator, _CHARACTERS)
        for one, layer in zip(parts, layers, strict=True)
    ]
    return within, tuple(rest)


def _colour(known: tuple[int, TaskOutcome] | None) -> str:
    return SOURCE_COLOURS.get(known[1].source, COLOURS[-1]) if known is not None else "currentColor"


def places_of(reads: Sequence[Sequence[int]]) -> list[int]:
    """The lane in which the result of each row lies.

    Args:
        reads: for each row, the rows before it whose results it reads.
    """
    last = list(range(len(reads)))
    for row, those in enumerate(reads):
        for one in those:
            last[one] = row
    lanes: list[int] = []
    taken: dict[int, int] = {}
    for row, those in enumerate(reads):
        ended = sorted(lanes[one] for one in set(those) if last[one] == row)
        for lane in ended:
            del taken[lane]
        free = (lane for lane in range(len(taken) + 1) if lane not in taken)
        lanes.append(ended[0] if ended else next(free))
        if last[row] > row:
            taken[lanes[row]] = row
    return lanes


def _lanes(
    reads: Sequence[Sequence[int]], rows: Sequence[Row], colours: Sequence[str], inputs: int
) -> tuple[Element, float]:
    """The picture of the lanes and its width in pixels."""
    lanes = places_of(reads)
    count = max(lanes) + 1
    pitch = min(_LANE_PX, _WIDEST_PX / count)
    width, height = pitch * (count - 1) + 2 * _MOST_PX + 4, ROW_PX * len(rows)
    label = "Each row's result goes along a line to the rows that read it"
    root = ElementTree.Element("svg", {"role": "img", "aria-label": label, "class": "lanes"})
    root.set("viewBox", f"0 0 {digits(width)} {height}")
    root.set("width", digits(width))
    root.set("height", str(height))

    def place(row: int) -> tuple[float, float]:
        return _MOST_PX + 2 + pitch * lanes[row], ROW_PX * (row + 0.5)

    outlines: dict[int, list[str]] = {}
    for row, those in enumerate(reads):
        x, y = place(row)
        for one in those:
            begin_x, begin_y = place(one)
            bend = y - ROW_PX
            straight = f"V{digits(bend)}" if bend > begin_y else ""
            end = (
                f"V{digits(y)}"
                if x == begin_x
                else f"C{digits(begin_x)} {digits(y - ROW_PX / 3)} {digits(x)} {digits(y - 2 * ROW_PX / 3)}"
                f" {digits(x)} {digits(y)}"
            )
            outlines.setdefault(one, []).append(f"M{digits(begin_x)} {digits(begin_y)}{straight}{end}")
    for parts in outlines.values():
        add(root, "path", class_="flow", d="".join(parts))
    for row, shown in enumerate(rows):
        x, y = place(row)
        call = inputs <= row < inputs + len(colours)
        radius = _LEAST_PX + (_MOST_PX - _LEAST_PX) * shown.share**0.5 if call else _LEAST_PX + 1
        add(
            root,
            "circle",
            class_="call" if call else "end",
            cx=x,
            cy=y,
            r=radius,
            fill=colours[row - inputs] if call else "currentColor",
        )
    return root, width
