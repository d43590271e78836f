"""Layers of the model's file on the way from an importer to the kernels that compute them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch  # isort: split

import tvm
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from tvm import relax

from host.importers import from_module, load, load_here
from host.importers.layers import module_path, source_line
from host.lowering import lower
from host.model import ImportedModel, Layer, layer_of
from tests.unit.lowering.harness import board


def _layers(model: ImportedModel) -> list[tuple[str, str]]:
    """Name and operator of the layers that variables of the module carry, each once and in order."""
    assert model.module is not None, model.reason
    bindings = [binding for block in model.module["main"].body.blocks for binding in block.bindings]
    found = [layer_of(binding.var.name) for binding in bindings]
    return list(dict.fromkeys((layer.name, layer.operator) for layer in found if layer is not None))


def _kernels(model: ImportedModel) -> dict[str, list[str]]:
    """Names of the layers of each kernel."""
    return {task.name: [layer.name for layer in task.layers] for task in lower(model, board()).tasks}


def _weight(name: str, *shape: int) -> TensorProto:
    values = np.random.default_rng(len(name)).uniform(0.1, 1.0, shape)
    return numpy_helper.from_array(values.astype(np.float32), name)


def _save(path: Path, nodes: list[onnx.NodeProto], weights: list[TensorProto], shape: list[int]) -> Path:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(model, path)
    return path


def _convnet(path: Path) -> Path:
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w"], ["a"], name="stem/conv", pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["a", "g", "b", "m", "v"], ["c"], name="stem/norm"),
        node("Relu", ["c"], ["d"], name="stem/act"),
        node("MaxPool", ["d"], ["e"], name="pool\x1b[31m", kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", ["e"], ["f"]),
        node("MatMul", ["f", "h"], ["i"], name="head/product"),
        node("Add", ["i", "bias"], ["y"], name="head/bias"),
    ]
    weights = [_weight("w", 8, 3, 3, 3), *(_weight(name, 8) for name in "gbmv")]
    return _save(path, nodes, [*weights, _weight("h", 8 * 16, 5), _weight("bias", 5)], [1, 3, 8, 8])


def test_each_kernel_knows_the_nodes_of_an_onnx_file_that_it_computes(tmp_path: Path) -> None:
    path = _convnet(tmp_path / "net.onnx")
    # Through the worker, as every model file comes.
    model = load(path, golden_cases=1)
    assert _layers(model)[:3] == [
        ("stem/conv", "Conv"),
        ("stem/norm", "BatchNormalization"),
        ("stem/act", "Relu"),
    ]
    kernels = _kernels(model)
    assert ["stem/conv", "stem/norm", "stem/act"] in kernels.values(), "folded and fused into one"
    assert any("pool\x1b[31m" in names for names in kernels.values())
    assert ["head/product", "head/bias"] in kernels.values()
    assert all(kernels.values())


def test_a_pattern_that_becomes_one_operation_keeps_all_of_its_nodes(tmp_path: Path) -> None:
    node = helper.make_node
    nodes = [
        node("ReduceMean", ["x"], ["mean"], name="ln/mean", axes=[-1]),
        node("Sub", ["x", "mean"], ["d"], name="ln/sub"),
        node("Mul", ["d", "d"], ["s"], name="ln/square"),
        node("ReduceMean", ["s"], ["v"], name="ln/variance", axes=[-1]),
        node("Add", ["v", "eps"], ["e"], name="ln/eps"),
        node("Sqrt", ["e"], ["r"], name="ln/sqrt"),
        node("Div", ["d", "r"], ["n"], name="ln/div"),
        node("Mul", ["n", "g"], ["y"], name="ln/scale"),
    ]
    eps = numpy_helper.from_array(np.float32(1e-5), "eps")
    path = _save(tmp_path / "norm.onnx", nodes, [eps, _weight("g", 64)], [4, 64])
    model = onnx.load(path)
    model.opset_import[0].version = 13
    onnx.save(model, path)
    (names,) = _kernels(load_here(path, golden_cases=1)).values()
    assert names == [one.name for one in nodes]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.blocks(x), -1)  # this line


def test_modules_and_lines_of_a_torch_program_come_along() -> None:
    model = from_module(Net().eval(), (torch.ones(2, 16),), golden_cases=1)
    layers = [layer for task in lower(model, board()).tasks for layer in task.layers]
    names = {layer.name for layer in layers}
    assert {"blocks.0", "blocks.1", "blocks.2"} <= names
    text = Path(__file__).read_text().splitlines()
    line = next(number for number, one in enumerate(text, 1) if one.endswith("# this line"))
    assert {layer.source for layer in layers} == {f"test_layers.py:{line}"}


def test_what_torch_writes_beside_onnx_nodes_is_read(tmp_path: Path) -> None:
    model = onnx.load(_convnet(tmp_path / "net.onnx"))
    scopes = ("['', 'stem', 'stem.conv', 'node_conv']", "['', 'x'", "[1, 2]")
    for node, scope in zip(model.graph.node, scopes, strict=False):
        trace = 'File "/home/me/net.py", line 7, in forward\nFile "/site-packages/torch/nn/conv.py", line 9'
        for key, value in (("name_scopes", scope), ("stack_trace", trace)):
            node.metadata_props.add(key=f"pkg.torch.onnx.{key}", value=value)
    onnx.save(model, tmp_path / "net.onnx")
    found = lower(load_here(tmp_path / "net.onnx", golden_cases=1), board()).tasks[0].layers
    assert [layer.name for layer in found] == ["stem.conv", "stem/norm", "stem/act"]
    assert {layer.source for layer in found} == {"net.py:7"}


def test_a_line_of_a_program_is_the_innermost_that_is_not_of_torch() -> None:
    assert source_line("") == source_line("nothing") == ""
    library = 'File "C:\\x\\site-packages\\torch\\f.py", line 4'
    assert source_line(f'File "C:\\me\\a.py", line 3\n{library}') == "a.py:3"
    assert source_line('File "/x/dist-packages/torch/f.py", line 4') == ""
    assert source_line('File "/home/me/torch/net.py", line 4') == "net.py:4"


@pytest.mark.parametrize(
    "name",
    [
        "lv",
        "layer:",
        "layer:[",
        "layer:{}",
        'layer:[0, "a", "b"]',
        'layer:[0, "a", "b", 3]',
        'layer:[-1, "a", "b", ""]',
        'layer:[true, "a", "b", ""]',
        'layer:[0, "' + "a" * 300 + '", "b", ""]',
        "layer:" + "[" * 3000,
    ],
)
def test_a_variable_without_a_layer_or_with_a_wrong_one_has_none(name: str) -> None:
    assert layer_of(name) is None


def test_a_layer_goes_into_a_name_and_back() -> None:
    layer = Layer(3, 'a "b"\n', "Conv", "net.py:1")
    assert layer_of(layer.variable) == layer
    assert layer_of(Layer(0, "ü" * 500, "Conv").variable) == Layer(0, "ü" * 200, "Conv")


def test_calls_know_whose_results_they_read(tmp_path: Path) -> None:
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w"], ["a"], name="stem/conv", pads=[1, 1, 1, 1]),
        node("MaxPool", ["a"], ["b"], name="stem/pool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Conv", ["b", "v"], ["c"], name="block/conv", pads=[1, 1, 1, 1]),
        node("Add", ["c", "a"], ["d"], name="block/add"),
        node("Flatten", ["d"], ["e"], name="flat"),
        node("Gemm", ["e", "h"], ["y"], name="head"),
    ]
    weights = [_weight("w", 16, 3, 3, 3), _weight("v", 16, 16, 3, 3), _weight("h", 16 * 64, 10)]
    model = load(_save(tmp_path / "net.onnx", nodes, weights, [1, 3, 8, 8]))
    lowered = lower(model, board())
    calls = lowered.calls.calls
    assert [call.kernel for call in calls] == list(_by_call(lowered.module))
    named = {layer.name: number for number, call in enumerate(calls) for layer in call.layers}

    def read_by(name: str) -> set[str]:
        """Layers whose results the call of a layer reads, through calls that have no layer of their own."""
        reads = calls[named[name]].reads
        return {layer.name for one in reads if one >= 0 for layer in calls[one].layers}

    assert "stem/conv" in read_by("stem/pool")
    assert {"stem/conv", "stem/pool"} <= read_by("block/add")
    assert "block/add" in read_by("head"), "the view between them is seen through"
    assert calls[named["stem/conv"]].reads == (-1,) or calls[calls[named["stem/conv"]].reads[0]].reads == (
        -1,
    )
    assert lowered.calls.outputs == (len(calls) - 1,)


def _by_call(module: tvm.IRModule) -> list[str]:
    bindings = [binding for block in module["main"].body.blocks for binding in block.bindings]
    values = [binding.value for binding in bindings if isinstance(binding.value, relax.Call)]
    return [one.args[0].name_hint for one in values if isinstance(one.args[0], tvm.ir.GlobalVar)]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("__main__.N/torch.nn.modules.container.Sequential_f/torch.nn.modules.conv.Conv2d_0;", "f.0"),
        ("a.Net/a.Bert_model/a.Embeddings_word_embeddings;12", "model.word_embeddings"),
        ("a.N/b.ReLU6_4;;a.N/b.BatchNorm2d_1;;a.N/b.Conv2d__conv_3;2", "_conv_3"),
        ("__main__.N;", "N"),
        # Of other programs, or nearly of this one.
        ("model/block_1/depthwise/Relu;model/block_1/bn", "model/block_1/depthwise/Relu;model/block_1/bn"),
        ("StatefulPartitionedCall:0", "StatefulPartitionedCall:0"),
        ("a.N/conv;", "a.N/conv;"),
        (";;", ";;"),
        ("", ""),
    ],
)
def test_a_name_of_litert_torch_is_the_path_of_its_module(name: str, path: str) -> None:
    assert module_path(name) == path
