"""ONNX files that would take a machine's time or memory, or are no models, by what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Write = Callable[[Path], None]
F, I = TensorProto.FLOAT, TensorProto.INT64  # noqa: E741 - as the format calls them


def _model(
    nodes: list[onnx.NodeProto],
    constants: list[onnx.TensorProto] | None = None,
    functions: list[onnx.FunctionProto] | None = None,
    shape: tuple[int, ...] = (4,),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", F, shape)],
        [onnx.ValueInfoProto(name="y", type=helper.make_tensor_type_proto(F, None))],
        constants or [],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, functions=functions or [], opset_imports=opsets, ir_version=10)


def _saved(make: Callable[[], onnx.ModelProto]) -> Write:
    def write(path: Path) -> None:
        path.write_bytes(make().SerializeToString())

    return write


def _number(name: str, *values: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def _weight(**fields: object) -> onnx.ModelProto:
    """A model that adds a weight with some fields changed."""
    tensor = TensorProto(name="w", data_type=F, dims=[4], raw_data=b"\0" * 16)
    for name, value in fields.items():
        if name == "dims":
            del tensor.dims[:]
            tensor.dims.extend(value)  # type: ignore[arg-type]
        else:
            setattr(tensor, name, value)
    return _model([helper.make_node("Add", ["x", "w"], ["y"])], [tensor])


def _external(offset: str, length: str | None, size: int, dims: list[int]) -> Write:
    """A weight in another file of some size, which has holes only."""

    def write(path: Path) -> None:
        model = _weight(dims=dims, raw_data=b"", data_location=TensorProto.EXTERNAL)
        entries = {"location": "weights.bin", "offset": offset} | (
            {} if length is None else {"length": length}
        )
        for key, value in entries.items():
            model.graph.initializer[0].external_data.add(key=key, value=value)
        path.write_bytes(model.SerializeToString())
        with (path.parent / "weights.bin").open("wb") as stream:
            stream.truncate(size)

    return write


def _function(name: str, calls: list[str]) -> onnx.FunctionProto:
    nodes, last = [], "a"
    for number, called in enumerate(calls):
        domain = "own" if called.startswith("f") else ""
        nodes.append(helper.make_node(called, [last], [f"v{number}"], domain=domain))
        last = f"v{number}"
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["a"], [last], nodes, opsets)


def _calling(functions: list[onnx.FunctionProto]) -> onnx.ModelProto:
    return _model([helper.make_node("f0", ["x"], ["y"], domain="own")], functions=functions)


def _body(nodes: list[onnx.NodeProto]) -> onnx.GraphProto:
    """The body of a loop that carries one value."""
    return helper.make_graph(
        [helper.make_node("Identity", ["go"], ["go_on"]), *nodes],
        "body",
        [
            helper.make_tensor_value_info("turn", I, ()),
            helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("v", F, (4,)),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("w", F, (4,)),
        ],
    )


def _loop(turns: int) -> onnx.ModelProto:
    body = _body([helper.make_node("Neg", ["v"], ["w"])])
    return _model([helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)], [_number("n", turns)])


def _loops(depth: int, turns: int) -> onnx.ModelProto:
    """Loops in loops: turns to the power of the depth."""
    nodes = [helper.make_node("Neg", ["v"], ["w"])]
    for _ in range(depth):
        nodes = [helper.make_node("Loop", ["n", "", "v"], ["w"], body=_body(nodes))]
    nodes[0].input[2], nodes[0].output[0] = "x", "y"
    return _model(nodes, [_number("n", turns)])


def _choices(depth: int) -> onnx.ModelProto:
    nodes = [helper.make_node("Neg", ["x"], ["z"])]
    for _ in range(depth):
        branch = helper.make_graph(nodes, "b", [], [helper.make_tensor_value_info("z", F, (4,))])
        nodes = [helper.make_node("If", ["c"], ["z"], then_branch=branch, else_branch=branch)]
        if depth > 20:  # only one branch grows, or the file would
            nodes[0].attribute[1].g.node[0].CopyFrom(helper.make_node("Neg", ["x"], ["z"]))
    nodes[0].output[0] = "y"
    return _model(nodes, [numpy_helper.from_array(np.array(True), "c")])


def _made(operator: str, *sizes: int) -> onnx.ModelProto:
    """A tensor of many elements made out of nothing."""
    return _model(
        [
            helper.make_node(operator, ["n"] if operator == "ConstantOfShape" else ["x", "n"], ["m"]),
            helper.make_node("ReduceSum", ["m"], ["y"], keepdims=0),
        ],
        [_number("n", *sizes)],
        shape=(1,) * len(sizes),
    )


def _renamed(make: Callable[[], onnx.ModelProto], old: bytes, new: bytes) -> Write:
    def write(path: Path) -> None:
        path.write_bytes(make().SerializeToString().replace(old, new))

    return write


def _inputs(count: int) -> onnx.ModelProto:
    model = _model([helper.make_node("Neg", ["x"], ["y"])])
    model.graph.input.extend(helper.make_tensor_value_info(f"x{i}", F, (1,)) for i in range(count))
    return model


def _typed(kind: int) -> onnx.ModelProto:
    model = _model([helper.make_node("Neg", ["x"], ["y"])])
    model.graph.input[0].type.tensor_type.elem_type = kind
    return model


def _cycle() -> onnx.ModelProto:
    return _model([helper.make_node("Add", ["x", "b"], ["y"]), helper.make_node("Neg", ["y"], ["b"])])


def _twice() -> onnx.ModelProto:
    return _model([helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Abs", ["x"], ["y"])])


def _without_branches() -> onnx.ModelProto:
    return _model([helper.make_node("If", ["c"], ["y"])], [numpy_helper.from_array(np.array(True), "c")])


def _resized() -> onnx.ModelProto:
    return _model(
        [
            helper.make_node("Resize", ["x", "", "", "n"], ["m"], mode="nearest"),
            helper.make_node("ReduceSum", ["m"], ["y"], keepdims=0),
        ],
        [_number("n", 1, 1, 1 << 20, 1 << 20)],
        shape=(1, 1, 2, 2),
    )


def _range() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Range", ["zero", "end", "one"], ["r"]),
        helper.make_node("Cast", ["r"], ["f"], to=F),
        helper.make_node("ReduceSum", ["f"], ["s"], keepdims=0),
        helper.make_node("Add", ["x", "s"], ["y"]),
    ]
    scalars = {"zero": 0, "end": 1 << 42, "one": 1}
    return _model(nodes, [numpy_helper.from_array(np.array(v, np.int64), k) for k, v in scalars.items()])


def _sparse() -> onnx.ModelProto:
    model = _model([helper.make_node("Add", ["x", "s"], ["y"])])
    values = numpy_helper.from_array(np.ones(1, np.float32), "s")
    sparse = helper.make_sparse_tensor(values, _number("", 0), [1 << 40])
    model.graph.sparse_initializer.append(sparse)
    return model


# What is wrong, the file, and what is said of it.
HOSTILE: dict[str, tuple[Write, str]] = {
    "data type 99": (_saved(lambda: _weight(data_type=99)), "data type 99"),
    "input of data type 99": (_saved(lambda: _typed(99)), "data type 99"),
    "negative offset": (_external("-64", None, 4096, [4]), "no such weight"),
    "offset that is no number": (_external("x", None, 4096, [4]), "cannot be read"),
    "length that is another": (_external("0", "999999", 4096, [4]), "no such weight"),
    "weights of 40 GB": (_external("0", None, 40 << 30, [4]), "uses 16 of them"),
    "a weight of 40 GB": (_external("0", None, 40 << 30, [10 << 30]), "elements"),
    "huge dimensions": (_saved(lambda: _weight(dims=[1 << 40, 1 << 40])), "elements"),
    "overflowing dimensions": (_saved(lambda: _weight(dims=[1 << 32, 1 << 32])), "elements"),
    "negative dimensions": (_saved(lambda: _weight(dims=[-4])), "negative"),
    "many dimensions": (_saved(lambda: _weight(dims=[1] * 100)), "100 dimensions"),
    "huge input": (
        _saved(lambda: _model([helper.make_node("Neg", ["x"], ["y"])], shape=(1 << 36,))),
        "elements",
    ),
    "huge input dimension": (
        _saved(lambda: _model([helper.make_node("Neg", ["x"], ["y"])], shape=(1 << 62,))),
        "size of",
    ),
    "name that is not UTF-8": (_renamed(lambda: _inputs(1), b"x0", b"\xff\xfe"), "UTF-8|not an ONNX"),
    "long name": (_renamed(lambda: _calling([_function("f0", ["Neg" * 5000])]), b"~", b"~"), "characters"),
    "function that calls itself": (_saved(lambda: _calling([_function("f0", ["f0"])])), "calls itself"),
    "functions that call each other": (
        _saved(lambda: _calling([_function("f0", ["f1"]), _function("f1", ["f0"])])),
        "calls itself",
    ),
    "2^23 calls": (
        _saved(
            lambda: _calling(
                [_function(f"f{i}", [f"f{i + 1}"] * 2 if i < 23 else ["Neg"]) for i in range(24)]
            )
        ),
        "nodes",
    ),
    "a chain of functions": (
        _saved(
            lambda: _calling([_function(f"f{i}", [f"f{i + 1}"] if i < 99 else ["Neg"]) for i in range(100)])
        ),
        "deeper",
    ),
    "a loop of 2^40": (_saved(lambda: _loop(1 << 40)), "turns"),
    "loops in loops": (_saved(lambda: _loops(3, 250)), "nodes"),
    "loops in loops in loops": (_saved(lambda: _loops(6, 255)), "nodes"),
    "deep choices": (_saved(lambda: _choices(28)), "nested"),
    "many inputs": (_saved(lambda: _inputs(10_000)), "10001 inputs"),
    "a fill of 2^40": (_saved(lambda: _made("ConstantOfShape", 1 << 40)), "."),
    "an expansion of 2^40": (_saved(lambda: _made("Expand", 1 << 40)), "."),
    "a repetition of 2^40": (_saved(lambda: _made("Tile", 1 << 40)), "."),
    "a range of 2^42": (_saved(_range), "."),
    "an image of 2^40": (_saved(_resized), "."),
    "a sparse weight of 2^40": (_saved(_sparse), "elements"),
    "a cycle": (_saved(_cycle), "."),
    "a name twice": (_saved(_twice), "."),
    "no branches": (_saved(_without_branches), "."),
    "a node without results": (_saved(lambda: _model([helper.make_node("Neg", ["x"], [])])), "gives nothing"),
}
