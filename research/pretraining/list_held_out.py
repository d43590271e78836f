"""Writes the list of anchors of the held-out networks: `python -m research.pretraining.list_held_out FOLDER`.

FOLDER contains the ONNX files that `python -m research.models.export` writes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import research.pretraining
from host.errors import ScheduleError
from host.importers import load_here as load
from host.lowering import lower
from host.model import ImportedModel
from host.schedules.analysis import analyse
from research.pretraining.held_out import FILE, anchor_key
from targets import Board, board_for, declared

NETWORKS = {
    "ResNet-50": "resnet50",
    "MobileNetV2": "mobilenetv2",
    "BERT-base": "bert-base",
    "GPT-2": "gpt2",
    "DCGAN": "dcgan",
    "ResNeXt-50": "resnext50",
}
BOARDS = ("x86_64-v4", "x86_64-v3", "x86_64-v2", "jetson_orin_nano", "raspberry_pi_4", "spacemit_k1")


def boards(names: Sequence[str] = BOARDS) -> Iterator[Board]:
    """The boards whose lowered tasks differ: one for every vector width, and a GPU."""
    described = declared()
    for name in names:
        board = board_for(described[name])
        assert board is not None
        yield board
        if board.gpu is not None:
            yield board.on_gpu()


def anchors_of(model: ImportedModel, names: Sequence[str] = BOARDS) -> list[str]:
    """The sorted anchors of all tasks of a model, for all boards."""
    found = set()
    for board in boards(names):
        for approximate in (True, False):
            for task in lower(model, board, approximate=approximate).tasks:
                try:
                    found.add(anchor_key(analyse(task.function)))
                except ScheduleError:
                    continue  # no rule has programs for this task, so the language model never sees it
    return sorted(found)


def main(folder: Path) -> None:
    """Writes the list for all held-out networks."""
    listed = {}
    for name, stem in NETWORKS.items():
        listed[name] = anchors_of(load(folder / f"{stem}.onnx", golden_cases=1))
        print(f"{name}: {len(listed[name])} anchors")
    path = Path(research.pretraining.__file__).with_name(FILE)
    path.write_text(json.dumps(listed, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
