"""What the importers find out about integer inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import NodeProto, helper

from host.importers import load_here as load
from tests.fuzz.corpus import tflite_models
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


class Bags(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.EmbeddingBag(17, 4, mode="sum")

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.table(ids)


def test_indices_of_bags_stay_within_their_table(tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    torch.export.save(torch.export.export(Bags(), (torch.zeros(8, 20, dtype=torch.int64),)), path)
    model = load(path)
    assert model.module is not None, model.reason
    ids = np.concatenate([case.inputs[0].ravel() for case in model.golden])
    assert set(ids) == set(range(17))


class Messages(torch.nn.Module):
    def forward(self, places: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.zeros(6, 3).index_add(0, places, values)


def test_places_that_values_are_added_to_are_within_the_tensor(tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    inputs = (torch.zeros(20, dtype=torch.int64), torch.zeros(20, 3))
    torch.export.save(torch.export.export(Messages(), inputs), path)
    places = np.concatenate([case.inputs[0] for case in load(path).golden])
    assert set(places) == set(range(6))


class Written(torch.nn.Module):
    def forward(self, x: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        return x.index_put((rows, columns), torch.ones(60))


def test_places_that_values_are_written_to_are_within_their_axes(tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    inputs = (torch.zeros(6, 15), torch.zeros(60, dtype=torch.int64), torch.zeros(60, dtype=torch.int64))
    torch.export.save(torch.export.export(Written(), inputs), path)
    golden = load(path).golden
    for position, size in ((1, 6), (2, 15)):
        assert set(np.concatenate([case.inputs[position] for case in golden])) == set(range(size))


Shape = tuple[int, ...]


def _pooled() -> NodeProto:
    return helper.make_node("RoiAlign", ["x", "r", "i"], ["y"], output_height=2, output_width=2)


def _gru() -> NodeProto:
    return helper.make_node("GRU", ["x", "w", "r", "", "i"], ["y"], hidden_size=1)


# Nodes; other inputs; the shapes of the indices and of the output; what the indices may be.
READERS: dict[str, tuple[list[NodeProto], dict[str, Shape], Shape, Shape, range]] = {
    "RoiAlign": ([_pooled()], {"x": (2, 1, 8, 8), "r": (40, 4)}, (40,), (40, 1, 2, 2), range(2)),
    "OneHot": ([helper.make_node("OneHot", ["i", "depth", "ends"], ["y"])], {}, (90,), (90, 15), range(15)),
    "ScatterND": (
        [helper.make_node("ScatterND", ["x", "i", "u"], ["y"])],
        {"x": (20, 3), "u": (40,)},
        (40, 2),
        (20, 3),
        range(3),
    ),
    "GatherND": (
        [helper.make_node("GatherND", ["x", "i"], ["y"], batch_dims=1)],
        {"x": (2, 12, 3)},
        (2, 30, 1),
        (2, 30, 3),
        range(12),
    ),
    "Concat": (
        [
            helper.make_node("Concat", ["zeros", "i"], ["places"], axis=1),
            helper.make_node("GatherND", ["x", "places"], ["y"]),
        ],
        {"x": (3, 3)},
        (40, 1),
        (40,),
        range(3),
    ),
    "ReverseSequence": (
        [helper.make_node("ReverseSequence", ["x", "i"], ["y"], batch_axis=0, time_axis=1)],
        {"x": (40, 3)},
        (40,),
        (40, 3),
        range(4),
    ),
    "MaxUnpool": (
        [helper.make_node("MaxUnpool", ["x", "i"], ["y"], kernel_shape=[1, 1])],
        {"x": (1, 1, 1, 5)},
        (1, 1, 1, 5),
        (1, 1, 1, 5),
        range(5),
    ),
    "TensorScatter": (
        [helper.make_node("TensorScatter", ["x", "u", "i"], ["y"])],
        {"x": (40, 1, 8, 2), "u": (40, 1, 5, 2)},
        (40,),
        (40, 1, 8, 2),
        range(4),
    ),
    "TopK": (
        [
            helper.make_node("TopK", ["i", "all"], ["ordered", "places"]),
            helper.make_node("Gather", ["x", "ordered"], ["rows"]),
            helper.make_node("Gather", ["rows", "places"], ["y"]),
        ],
        {"x": (48, 3)},
        (40,),
        (40, 3),
        range(48),
    ),
    # At least half of the steps.
    "GRU": ([_gru()], {"x": (3, 40, 2), "w": (1, 3, 2), "r": (1, 3, 1)}, (40,), (3, 1, 40, 1), range(2, 4)),
}


@pytest.mark.parametrize("name", READERS)
def test_indices_and_lengths_are_those_that_their_operator_takes(name: str, tmp_path: Path) -> None:
    nodes, others, shape, made, values = READERS[name]
    inputs = {other: np.zeros(size, np.float32) for other, size in others.items()}
    inputs["i"] = np.zeros(shape, np.int32 if name == "GRU" else np.int64)
    constants = {
        "depth": np.array(15),
        "ends": np.array([0, 1], np.float32),
        "zeros": np.zeros((40, 1), np.int64),
        "all": np.array([40]),
    }
    used = {given for node in nodes for given in node.input}
    constants = {key: array for key, array in constants.items() if key in used}
    path = tmp_path / "m.onnx"
    out, opset = value("y", np.zeros(made, np.float32)), 24 if name == "TensorScatter" else 20
    path.write_bytes(graph(nodes, inputs, [out], constants, opset).SerializeToString())
    cases = load(path, golden_cases=8).golden
    drawn = np.concatenate([case.inputs[list(inputs).index("i")].ravel() for case in cases])
    assert set(drawn) == set(values)


def test_regions_lie_within_the_image_and_have_a_size(tmp_path: Path) -> None:
    inputs = {"x": np.zeros((1, 1, 8, 20), np.float32), "r": np.zeros((40, 4), np.float32)}
    options = {"output_height": 2, "output_width": 2, "spatial_scale": 0.25, "sampling_ratio": 0}
    node = helper.make_node("RoiAlign", ["x", "r", "i"], ["y"], **options)
    out, path = value("y", np.zeros((40, 1, 2, 2), np.float32)), tmp_path / "m.onnx"
    images = {"i": np.zeros(40, np.int64)}
    path.write_bytes(graph([node], inputs, [out], images).SerializeToString())
    drawn = np.concatenate([case.inputs[1] for case in load(path).golden])
    assert (drawn >= 0).all() and (drawn[:, :2] <= drawn[:, 2:]).all()
    assert 60 < drawn[:, 2].max() <= 80 and 24 < drawn[:, 3].max() <= 32


def test_regions_with_the_number_of_their_image_are_of_an_image_that_exists(tmp_path: Path) -> None:
    inputs = {"x": np.zeros((3, 1, 8, 20), np.float32), "r": np.zeros((40, 5), np.float32)}
    node = helper.make_node("MaxRoiPool", ["x", "r"], ["y"], pooled_shape=[2, 2], spatial_scale=0.25)
    out, path = value("y", np.zeros((40, 1, 2, 2), np.float32)), tmp_path / "m.onnx"
    path.write_bytes(graph([node], inputs, [out], {}).SerializeToString())
    drawn = np.concatenate([case.inputs[1] for case in load(path).golden])
    assert set(drawn[:, 0]) == {0, 1, 2}
    assert (drawn[:, 1:] >= 0).all() and (drawn[:, 1:3] <= drawn[:, 3:]).all()
    assert 60 < drawn[:, 3].max() <= 80 and 24 < drawn[:, 4].max() <= 32


@pytest.mark.parametrize(
    ("operator", "axis", "shape", "limit"),
    [
        ("GATHER", 0, (300,), 7),
        ("GATHER", 1, (300,), 30),
        ("GATHER", -1, (300,), 4),
        ("GATHER_ND", None, (300, 1), 7),
        ("GATHER_ND", None, (300, 3), 4),
    ],
)
def test_indices_of_a_tflite_table_stay_within_their_axis(
    operator: str, axis: int | None, shape: Shape, limit: int, tmp_path: Path
) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(tflite_models.packed(tflite_models.gather((7, 30, 4), shape, operator, axis)))
    indices = np.concatenate([case.inputs[0].ravel() for case in load(path).golden])
    assert set(indices) == set(range(limit))
