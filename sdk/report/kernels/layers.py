"""The operations of a model's file as a tree of modules, with the kernels that compute each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from device_agent.contract.text import printable

if TYPE_CHECKING:
    from host.deploy import TaskOutcome
    from host.model import Layer

# What a page lists; a longer model is cut off, and the page says so.
MOST_LAYERS = 2000
# Modules within modules: what is deeper lies flat in the last one.
_DEEPEST = 10
# Layers of a kernel that its row of the table names.
_NAMED = 2
_CHARACTERS = 80


@dataclass
class Module:
    """Layers whose names begin alike.

    Attributes:
        name: the part of their names that is common and longer than that of the module around it.
        modules: inside of it, by name, in the order of the file.
        layers: that are in no module inside of it: the rest of the name, the layer, its kernels.
    """

    name: str
    modules: dict[str, Module] = field(default_factory=dict)
    layers: list[tuple[str, Layer, tuple[str, ...]]] = field(default_factory=list)

    @property
    def first(self) -> int:
        """Position of its first layer in the file, those of its modules too."""
        own = [layer.position for _, layer, _ in self.layers]
        return min([*own, *(one.first for one in self.modules.values())])

    @property
    def parts(self) -> list[Module | tuple[str, Layer, tuple[str, ...]]]:
        """Its modules and layers in the order of the file."""
        found: list[tuple[int, Module | tuple[str, Layer, tuple[str, ...]]]] = []
        found += [(one.first, one) for one in self.modules.values()]
        found += [(one[1].position, one) for one in self.layers]
        return [one for _, one in sorted(found, key=lambda pair: pair[0])]

    @property
    def count(self) -> int:
        """Layers in it, those of its modules too."""
        return len(self.layers) + sum(one.count for one in self.modules.values())


def layer_tree(tasks: Sequence[TaskOutcome]) -> Module | None:
    """The layers that kernels compute, at most `MOST_LAYERS` of them; None where no layer is known."""
    kernels: dict[Layer, list[str]] = {}
    for task in tasks:
        for layer in task.layers:
            kernels.setdefault(layer, []).append(task.name)
    if not kernels:
        return None
    root = Module("")
    shown = sorted(kernels)[:MOST_LAYERS]
    modules = {
        tuple(parts[:end]) for parts in (_parts(one.name) for one in shown) for end in range(1, len(parts))
    }
    for layer in shown:
        parts = _parts(layer.name)
        # What a module does itself stands in it, under the name of the operator.
        own = tuple(parts) in modules
        *path, last = [*parts, printable(layer.operator, _CHARACTERS)] if own else parts
        inside = root
        for part in path:
            inside = inside.modules.setdefault(part, Module(part))
        inside.layers.append((last, layer, tuple(kernels[layer])))
    return _joined(root)


def layers_left_out(tasks: Sequence[TaskOutcome]) -> int:
    """Layers that `layer_tree` leaves out."""
    return max(0, len({layer for task in tasks for layer in task.layers}) - MOST_LAYERS)


def computed(layers: Sequence[Layer]) -> str:
    """The first layers of a kernel, for a row of a table; "" where none is known."""
    named = ", ".join(printable(layer.name, _CHARACTERS) for layer in layers[:_NAMED])
    return named + (f" and {len(layers) - _NAMED} more" if len(layers) > _NAMED else "")


def embedded(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The figures as a page carries them: with at most `MOST_LAYERS` layers, so that it stays small.

    A kernel whose layers are cut off has their number as `layers_in_all`, a graph that of its calls as
    `calls_in_all`.
    """
    left = MOST_LAYERS
    tasks = []
    for task in figures["tasks"]:
        kept = task["layers"][:left]
        left -= len(kept)
        whole = len(kept) == len(task["layers"])
        tasks.append({**task, "layers": kept} | ({} if whole else {"layers_in_all": len(task["layers"])}))
    return {**figures, "tasks": tasks, "graph": _embedded_graph(figures.get("graph"))}


def _embedded_graph(graph: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if graph is None or len(graph["calls"]) <= MOST_LAYERS:
        return graph
    return {**graph, "calls": graph["calls"][:MOST_LAYERS], "calls_in_all": len(graph["calls"])}


def _parts(name: str) -> list[str]:
    """The modules of a name and its own: parts between slashes where there are any, else between dots."""
    shown = printable(name, 2 * _CHARACTERS)
    parts = [part for part in shown.split("/" if "/" in shown else ".") if part] or [shown]
    if len(parts) <= _DEEPEST:
        return parts
    return [*parts[: _DEEPEST - 1], "/".join(parts[_DEEPEST - 1 :])]


def _joined(module: Module) -> Module:
    """The module with those that hold nothing but one module written as one."""
    found = Module(module.name, {}, module.layers)
    for inner in map(_joined, module.modules.values()):
        while len(inner.modules) == 1 and not inner.layers:
            (only,) = inner.modules.values()
            inner = Module(f"{inner.name}/{only.name}", only.modules, only.layers)
        found.modules[inner.name] = inner
    return found
