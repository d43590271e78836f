from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from host.importers.onnx.graph_order import sort_nodes
from tests.unit.importers.harness import graph, run_model, value


def _chain(operators: list[str]) -> onnx.GraphProto:
    nodes = [helper.make_node(kind, [f"v{i}"], [f"v{i + 1}"], kind) for i, kind in enumerate(operators)]
    return helper.make_graph(nodes, "chain", [], [])


def test_nodes_before_what_they_read_are_converted(tmp_path: Path) -> None:
    """As tools write them that put what they add at the end; ONNX Runtime takes such files."""
    x = np.linspace(-2, 2, 6, dtype=np.float32)
    nodes = [
        helper.make_node("Add", ["a", "b"], ["y"]),
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Abs", ["a"], ["b"]),
    ]
    model = graph(nodes, {"x": x}, [value("y", x)])
    run_model(tmp_path / "m.onnx", model, {"x": x}, [-x + np.abs(x)], absolute=1e-6)


def test_nodes_in_order_stay() -> None:
    chain = _chain(["Neg", "Abs", "Exp"])
    before = chain.SerializeToString()
    sort_nodes(chain)
    assert chain.SerializeToString() == before


def test_long_chains_in_reverse() -> None:
    chain = _chain([f"op{i}" for i in range(5000)])
    nodes = list(chain.node)[::-1]
    del chain.node[:]
    chain.node.extend(nodes)
    sort_nodes(chain)
    assert [node.op_type for node in chain.node] == [f"op{i}" for i in range(5000)]


def test_nodes_behind_what_their_branches_read() -> None:
    then, other = (
        helper.make_graph([helper.make_node("Neg", ["late"], [name])], name, [], []) for name in "ab"
    )
    branch = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    made = helper.make_graph([branch, helper.make_node("Abs", ["x"], ["late"])], "g", [], [])
    sort_nodes(made)
    assert [node.op_type for node in made.node] == ["Abs", "If"]


def test_circles_end() -> None:
    nodes = [helper.make_node("Add", ["a", "b"], ["c"]), helper.make_node("Neg", ["c"], ["a"])]
    made = helper.make_graph(nodes, "g", [], [])
    sort_nodes(made)
    assert sorted(node.op_type for node in made.node) == ["Add", "Neg"]
