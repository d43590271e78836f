"""No training task has an anchor of a test network."""

from __future__ import annotations

import itertools
from pathlib import Path

from host.importers import load_here as load
from host.schedules import space_for
from host.schedules.analysis import analyse
from research.models.export import export
from research.pretraining.held_out import anchor_key, held_out_anchors, is_held_out
from research.pretraining.list_held_out import NETWORKS, anchors_of
from tests.unit.schedules import functions as fn
from tests.unit.tlm.cases import spaces


def test_the_list_is_what_the_networks_are_lowered_to(tmp_path: Path) -> None:
    found = anchors_of(load(export("dcgan", tmp_path, "onnx"), golden_cases=1), ["x86_64-v4"])
    assert set(held_out_anchors()) == set(NETWORKS)
    assert set(found) <= set(held_out_anchors()["DCGAN"])


def test_an_anchor_is_held_out_whatever_follows_it() -> None:
    # The 3x3 convolution of ResNet-50 with 64 channels, here with a bias only.
    assert is_held_out(analyse(fn.convolution(56, 64, 64, 3, 1)))
    assert is_held_out(analyse(fn.convolution(56, 64, 64, 3, 1, lanes=8)))
    assert not is_held_out(analyse(fn.convolution(55, 64, 64, 3, 1)))
    one, other = analyse(fn.dense(8, 32, 24)), analyse(fn.batched(1, 8, 32, 24))
    assert anchor_key(one) == anchor_key(other) == "contraction 8 32 r24"


def test_spaces_know_their_anchor() -> None:
    for space in itertools.islice(spaces("x86", 3), 5):
        again = space_for(space.task, space.hardware, space.threads)
        assert anchor_key(again.workload) == anchor_key(space.workload)
