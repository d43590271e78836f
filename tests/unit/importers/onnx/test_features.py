"""Trees, features and counts of n-grams beside ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from host.importers import load_here as load
from tests.unit.importers.harness import check, graph, value
from tests.unit.importers.onnx.test_image_operators import run_onnxruntime

RNG = np.random.default_rng(5)
ML = "ai.onnx.ml"


def model_of(node: onnx.NodeProto, data: np.ndarray, output: np.ndarray | None, version: int) -> bytes:
    """A model of one node of the domain ai.onnx.ml or the standard."""
    out = onnx.ValueInfoProto(name="y") if output is None else value("y", output)
    model = graph([node], {"x": data}, [out], opset=18)
    model.opset_import.append(helper.make_opsetid(ML, version))
    return model.SerializeToString()


def imported(path: Path, node: onnx.NodeProto, data: np.ndarray, version: int = 3) -> Any:
    """The model as it is imported, with what ONNX Runtime makes as its golden case."""
    path.write_bytes(model_of(node, data, None, version))
    (wanted,) = run_onnxruntime("", path, [[data]])[0]
    path.write_bytes(model_of(node, data, wanted, version))
    return load(path, samples=[[data]], reference=run_onnxruntime)


def ensemble(dtype: type, **attributes: Any) -> onnx.NodeProto:
    """Two trees of three outputs: comparisons of all kinds, a set, and a path for missing values."""
    fields = {
        "n_targets": 3,
        "tree_roots": [0, 3],
        "nodes_featureids": [0, 1, 2, 3, 0, 1, 2],
        "nodes_modes": numpy_helper.from_array(np.array([0, 1, 2, 3, 4, 5, 6], np.uint8)),
        "nodes_splits": numpy_helper.from_array(np.array([0.1, -0.2, 0.3, 0.0, 1.0, 2.0, 0.0], dtype)),
        "nodes_truenodeids": [1, 0, 2, 4, 4, 6, 7],
        "nodes_trueleafs": [0, 1, 1, 0, 1, 0, 1],
        "nodes_falsenodeids": [2, 1, 3, 5, 5, 6, 8],
        "nodes_falseleafs": [0, 1, 1, 0, 1, 1, 1],
        "nodes_missing_value_tracks_true": [1, 0, 1, 0, 1, 0, 1],
        "leaf_targetids": [0, 1, 2, 0, 1, 2, 0, 1, 2],
        "leaf_weights": numpy_helper.from_array(np.arange(1, 10).astype(dtype) / 4),
        "membership_values": numpy_helper.from_array(np.array([1.0, 2.0, 3.0, np.nan], dtype)),
    }
    return helper.make_node("TreeEnsemble", ["x"], ["y"], domain=ML, **(fields | attributes))


def rows(dtype: type) -> np.ndarray:
    data = RNG.choice([-1.0, -0.5, 0.0, 0.5, 1.0, 2.0, np.nan], size=(40, 4)).astype(dtype)
    data[:4] = RNG.normal(size=(4, 4))
    return data


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("aggregate", [0, 1, 2, 3])
def test_trees(tmp_path: Path, dtype: type, aggregate: int) -> None:
    node = ensemble(dtype, aggregate_function=aggregate)
    check(imported(tmp_path / "m.onnx", node, rows(dtype), 5))


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"nodes_truenodeids": [1, 0, 2, 4, 4, 6, 99]}, "a node leads to one that is not there"),
        ({"nodes_trueleafs": [0, 0, 1, 0, 1, 0, 1]}, "its nodes lead back to themselves"),
        (
            {"nodes_featureids": [0, 1, 2, 3, 0, 1, 9]},
            "it reads features that data of 4 columns does not have",
        ),
        ({"nodes_featureids": [0, 1]}, "nodes_featureids has 2 entries for 7 nodes"),
        ({"leaf_targetids": [0, 1, 2, 0, 1, 2, 0, 1, 3]}, "a leaf adds to an output that is not there"),
        ({"n_targets": 1 << 40}, "9 leaves for 1099511627776 outputs have no conversion"),
    ],
)
def test_trees_that_lead_nowhere_are_refused(tmp_path: Path, attributes: dict, reason: str) -> None:
    data = rows(np.float32)
    path = tmp_path / "m.onnx"
    path.write_bytes(model_of(ensemble(np.float32, **attributes), data, np.zeros((40, 3), np.float32), 5))
    reference = lambda engine, file, cases: [[np.zeros((40, 3), np.float32)]]  # noqa: E731
    model = load(path, samples=[[data]], reference=reference)
    assert model.module is None
    assert model.reason == f"operator ai.onnx.ml.TreeEnsemble: {reason}"


def regressor(**attributes: Any) -> onnx.NodeProto:
    """Two trees, whose nodes and leaves are in one list; one leaf adds to both outputs."""
    fields = dict(
        nodes_treeids=[0, 0, 0, 0, 0, 7, 7, 7],
        nodes_nodeids=[0, 1, 2, 3, 4, 0, 1, 2],
        nodes_featureids=[0, 1, 0, 0, 0, 2, 0, 0],
        nodes_modes=["BRANCH_LEQ", "BRANCH_GT", "LEAF", "LEAF", "LEAF", "BRANCH_LT", "LEAF", "LEAF"],
        nodes_values=[0.1, 0.2, 0.0, 0.0, 0.0, -0.3, 0.0, 0.0],
        nodes_truenodeids=[1, 3, 0, 0, 0, 1, 0, 0],
        nodes_falsenodeids=[2, 4, 0, 0, 0, 2, 0, 0],
        target_treeids=[0, 0, 0, 0, 7, 7],
        target_nodeids=[2, 3, 3, 4, 1, 2],
        target_weights=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    )
    return helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain=ML, **(fields | attributes))


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_trees_of_the_older_regressor(tmp_path: Path, aggregate: str) -> None:
    data = RNG.normal(size=(20, 3)).astype(np.float32)
    node = regressor(n_targets=2, aggregate_function=aggregate, target_ids=[0, 0, 1, 1, 0, 1])
    check(imported(tmp_path / "m.onnx", node, data))


@pytest.mark.parametrize("transform", ["SOFTMAX", "LOGISTIC"])
def test_transforms_of_several_outputs(tmp_path: Path, transform: str) -> None:
    data = RNG.normal(size=(20, 3)).astype(np.float32)
    node = regressor(n_targets=2, target_ids=[0, 0, 1, 1, 0, 1], post_transform=transform)
    check(imported(tmp_path / "m.onnx", node, data))


def test_the_base_of_the_older_regressor(tmp_path: Path) -> None:
    data = RNG.normal(size=(20, 3)).astype(np.float32)
    one = regressor(
        n_targets=1,
        target_treeids=[0, 0, 0, 7, 7],
        target_nodeids=[2, 3, 4, 1, 2],
        target_ids=[0] * 5,
        target_weights=[1.0, 2.0, 4.0, 5.0, 6.0],
        base_values=[0.5],
    )
    check(imported(tmp_path / "m.onnx", one, data))
    several = regressor(n_targets=2, target_ids=[0, 0, 1, 1, 0, 1], base_values=[0.5, 1.0])
    reason = imported(tmp_path / "n.onnx", several, data).reason
    assert reason.endswith("TreeEnsembleRegressor: base values of several outputs have no conversion")


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_features(tmp_path: Path, dtype: type) -> None:
    data = RNG.integers(-5, 5, size=(3, 4)).astype(dtype)
    scaler = helper.make_node(
        "Scaler", ["x"], ["y"], domain=ML, offset=[1.0, 2.0, 3.0, 4.0], scale=[0.5, 1.0, 2.0, 4.0]
    )
    check(imported(tmp_path / "a.onnx", scaler, data))
    binarizer = helper.make_node("Binarizer", ["x"], ["y"], domain=ML, threshold=1.0)
    if dtype is np.float32:
        check(imported(tmp_path / "b.onnx", binarizer, data))
    wanted = [data[:, [3, 0]], data[0][[3, 0]].reshape(1, 2)]
    for given, expected in zip([data, data[0]], wanted, strict=True):
        path = tmp_path / f"{given.ndim}.onnx"
        pick = helper.make_node("ArrayFeatureExtractor", ["x", "i"], ["y"], domain=ML)
        model = graph([pick], {"x": given}, [value("y", expected)], {"i": np.array([3, 0], np.int64)}, 18)
        model.opset_import.append(helper.make_opsetid(ML, 3))
        path.write_bytes(model.SerializeToString())
        check(load(path, samples=[[given]], reference=run_onnxruntime))


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("skips", [0, 3])
@pytest.mark.parametrize("shape", [(12,), (3, 12), (2, 1)])
def test_counts_of_n_grams(tmp_path: Path, mode: str, skips: int, shape: tuple[int, ...]) -> None:
    node = helper.make_node(
        "TfIdfVectorizer",
        ["x"],
        ["y"],
        mode=mode,
        min_gram_length=1,
        max_gram_length=3,
        max_skip_count=skips,
        ngram_counts=[0, 3, 7],
        ngram_indexes=[0, 2, 1, 5, 3, 4],
        pool_int64s=[0, 1, 2, 0, 1, 1, 1, 2, 0, 1],
        weights=[0.5, 1.0, 1.5, 2.0, 2.5, 3.0],
    )
    data = RNG.integers(0, 3, size=shape).astype(np.int64)
    check(imported(tmp_path / "m.onnx", node, data))


def test_n_grams_of_text_are_refused(tmp_path: Path) -> None:
    node = helper.make_node(
        "TfIdfVectorizer",
        ["x"],
        ["y"],
        mode="TF",
        min_gram_length=1,
        max_gram_length=1,
        max_skip_count=0,
        ngram_counts=[0],
        ngram_indexes=[0],
        pool_strings=["a"],
    )
    data = np.zeros((1, 2), np.int64)
    path = tmp_path / "m.onnx"
    path.write_bytes(model_of(node, data, np.zeros((1, 1), np.float32), 3))
    model = load(path, samples=[[data]], reference=lambda *_: [[np.zeros((1, 1), np.float32)]])
    assert model.reason == "operator TfIdfVectorizer: n-grams of text have no conversion"
