"""Tasks that are held out of the training: those with the anchor block and shape of a test network's task.

`held_out.json` lists the anchors of ResNet-50, MobileNetV2, BERT-base, GPT-2, DCGAN and ResNeXt-50 as they
are lowered for every kind of board, with and without Winograd's algorithm. The blocks before and after the
anchor do not matter: the same anchor with another epilogue is held out too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from importlib import resources

from host.errors import TlmError
from host.schedules.workload import Workload

FILE = "held_out.json"


def anchor_key(workload: Workload) -> str:
    """The kind of the anchor and its axes with more than one iteration; reduction axes are marked `r`."""
    anchor = workload.anchor_stage
    return key_of_axes(anchor.kind, [(axis.extent, axis.reduce) for axis in anchor.axes])


def key_of_axes(kind: str, axes: Iterable[tuple[int, bool]]) -> str:
    """The key of an anchor of this kind; each axis has its extent and whether it is reduced."""
    return " ".join([kind, *(f"{'r' if reduce else ''}{extent}" for extent, reduce in axes if extent > 1)])


@cache
def held_out_anchors() -> dict[str, tuple[str, ...]]:
    """The held-out anchors of each test network.

    Raises:
        TlmError: the list is missing or damaged; install the package again.
    """
    try:
        content = json.loads((resources.files(__package__) / FILE).read_text())
        return {str(name): tuple(map(str, anchors)) for name, anchors in content.items()}
    except (OSError, ValueError, AttributeError) as error:
        raise TlmError(f"{FILE}: {error}; install the package again") from error


@cache
def _all_anchors() -> frozenset[str]:
    return frozenset(key for anchors in held_out_anchors().values() for key in anchors)


def is_held_out(workload: Workload) -> bool:
    """Whether one of the test networks has a task with this anchor."""
    return anchor_key(workload) in _all_anchors()
