"""What the importers find out about integer inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from onnx import helper

from host.importers import load_here as load
from tests.unit.importers.harness import graph, value

IDS = np.zeros((2, 6), np.int64)


def test_indices_of_a_table_stay_within_it(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["ids"], ["small"], to=6),
        helper.make_node("Unsqueeze", ["small", "axes"], ["wide"]),
        helper.make_node("Gather", ["table", "wide"], ["y"]),
    ]
    table = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    constants = {"table": table, "axes": np.array([0])}
    path = tmp_path / "m.onnx"
    out = value("y", np.zeros((1, 2, 6, 3), np.float32))
    path.write_bytes(graph(nodes, {"ids": IDS}, [out], constants).SerializeToString())
    ids = np.concatenate([case.inputs[0].ravel() for case in load(path).golden])
    assert ids.min() >= 0 and 20 < ids.max() < 40


def test_a_mask_holds_zeros_and_ones(tmp_path: Path) -> None:
    nodes = [helper.make_node("Cast", ["attention_mask"], ["y"], to=1)]
    path = tmp_path / "m.onnx"
    model = graph(nodes, {"attention_mask": IDS}, [value("y", IDS.astype(np.float32))])
    path.write_bytes(model.SerializeToString())
    masks = np.stack([case.inputs[0] for case in load(path, golden_cases=5).golden])
    assert set(np.unique(masks)) == {0, 1} and (masks[..., 0] == 1).all()


class Lookup(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(17, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.table(ids.view(-1).to(torch.int64)).sum(0)


def test_indices_of_a_torch_table_stay_within_it(tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    torch.export.save(torch.export.export(Lookup(), (torch.zeros(2, 6, dtype=torch.int32),)), path)
    ids = np.concatenate([case.inputs[0].ravel() for case in load(path).golden])
    assert ids.min() >= 0 and 10 < ids.max() < 17


def test_indices_that_are_picked_out_of_an_input_stay_within_their_table(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Gather", ["ids", "column"], ["picked"], axis=1),
        helper.make_node("Gather", ["table", "picked"], ["y"]),
    ]
    table = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    path = tmp_path / "m.onnx"
    out = value("y", np.zeros((2, 3), np.float32))
    constants = {"table": table, "column": np.array(4)}
    path.write_bytes(graph(nodes, {"ids": IDS}, [out], constants).SerializeToString())
    ids = np.concatenate([case.inputs[0].ravel() for case in load(path, golden_cases=8).golden])
    assert set(ids) == set(range(5))


class Messages(torch.nn.Module):
    def forward(self, places: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.zeros(6, 3).index_add(0, places, values)


def test_places_that_values_are_added_to_are_within_the_tensor(tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    inputs = (torch.zeros(20, dtype=torch.int64), torch.zeros(20, 3))
    torch.export.save(torch.export.export(Messages(), inputs), path)
    places = np.concatenate([case.inputs[0] for case in load(path).golden])
    assert set(places) == set(range(6))
