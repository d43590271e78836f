"""Operators added as the recipe says: one module with a specification, in the package or outside of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import helper
from tvm import relax

from device_agent.contract.limits import LIMITS
from host.errors import LoweringError
from host.importers import load_here
from host.lowering import lower, ops
from host.lowering.builder import Builder
from host.lowering.expressions import math
from host.lowering.graph import Graph, Node, Value, constant
from host.lowering.ops import known_operators
from host.lowering.ops.forms import elementwise, of_one, single_or
from host.lowering.passes.recognise import recognise
from host.lowering.rebuild import rebuild
from host.lowering.spec import GraphPass, OpSpec, Phase
from host.lowering.types import numeric_type
from targets import HardwareModel
from targets.hardware import Bfloat16Products
from tests.unit.importers.harness import graph, value
from tests.unit.lowering.harness import (
    LANES,
    board,
    functions,
    imported,
    normal,
    relax_module,
    run_lowered,
)

op = relax.op

# TVM names this operator and has no function for it.
_MODULE = """
from host.lowering.ops.forms import elementwise

SPECS = (
    elementwise(
        "ewise_fma", lambda args, attrs, dtype: args[0] * args[1] + args[2], fold=lambda a, b, c: a * b + c
    ),
)
"""


def _fused_multiply_add(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    twice = relax.const(np.full((4, 6), 2.0, "float32"))
    return op.nn.relu(bb.emit(op.ewise_fma(x, twice, bb.emit(op.exp(x)))))


def test_an_operator_of_relax_is_one_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = normal(4, 6)
    model = imported(relax_module(_fused_multiply_add, [x]))
    with pytest.raises(LoweringError, match="ewise_fma has no function"):
        lower(model, board())
    (tmp_path / "fused_multiply_add.py").write_text(_MODULE)
    monkeypatch.setattr(ops, "__path__", [*ops.__path__, str(tmp_path)])
    made = lower(model, board(), operators=known_operators.__wrapped__())
    (found,) = run_lowered(made, [x])
    np.testing.assert_allclose(found, np.maximum(2.0 * x + np.exp(x), 0.0), rtol=1e-5, atol=1e-6)
    # It is elementwise, and so shares one function with what stands before and behind it.
    assert functions(made) == ["fused_exp_ewise_fma_relu"]


def _mish_of_parts(builder: Builder, node: Node) -> Value | None:
    """X tanh(softplus(x))."""
    if node.op != "multiply":
        return None
    for x, gate in (node.inputs, node.inputs[::-1]):
        inner = gate.producer.inputs[0].producer if gate.producer and gate.producer.op == "tanh" else None
        if inner is not None and inner.op == "softplus" and inner.inputs[0] is x:
            return builder.unary("mish", x)
    return None


_MISH = elementwise(
    "mish",
    single_or(
        lambda x: math.bind(x, lambda v: v * math.tanh(math.log(math.number(1.0) + math.exp(v)))),
        of_one(lambda x: x),
    ),
    read={},
    recognise=(_mish_of_parts,),
)


def test_a_fused_operation_from_outside_takes_the_place_of_its_parts() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        return op.multiply(x, bb.emit(op.tanh(bb.emit(op.nn.softplus(x)))))

    x = normal(8, 16)
    made = lower(imported(relax_module(build, [x])), board(), operators=known_operators().with_specs(_MISH))
    assert functions(made) == ["fused_mish"]
    (found,) = run_lowered(made, [x])
    np.testing.assert_allclose(found, x * np.tanh(np.log1p(np.exp(x))), rtol=1e-4, atol=1e-5)


def _relu_as_mish(graph: Graph, hardware: HardwareModel) -> Graph:
    """Every ReLU as a mish, on the processor that the test is for."""

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        if node.op == "relu" and hardware.lanes == LANES:
            return builder.unary("mish", inputs[0])
        return builder.copy(node, inputs)

    return rebuild(graph, rule)


@pytest.mark.parametrize("phase", list(Phase))
def test_a_pass_over_the_whole_graph_belongs_to_the_operation_that_it_makes(phase: Phase) -> None:
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        return op.nn.relu(x)

    mish = dataclasses.replace(_MISH, passes=(GraphPass(phase, _relu_as_mish, approximate=True),))
    table = known_operators().with_specs(mish)
    model = imported(relax_module(build, [normal(8, 16)]))
    assert functions(lower(model, board(), operators=table)) == ["fused_mish"]
    assert functions(lower(model, board(), operators=table, approximate=False)) == ["fused_relu"]
    assert functions(lower(model, board(), operators=table, half="float16")) == ["fused_mish"]
    # bfloat16 has lost too much already.
    hardware = dataclasses.replace(board().hardware, bfloat16=Bfloat16Products("avx512bf16", 1.0, 4.0))
    rounding = dataclasses.replace(board(), hardware=hardware)
    assert functions(lower(model, rounding, operators=table, half="bfloat16")) == ["fused_relu"]


def test_names_and_readers_are_unique() -> None:
    table = known_operators()
    with pytest.raises(LoweringError, match="'exp'"):
        table.with_specs(OpSpec("exp"))
    with pytest.raises(LoweringError, match=r"'exp' and 'other' both read relax.exp"):
        table.with_specs(OpSpec("other", read={"exp": lambda builder, call: None}))


def test_an_operation_without_specification_is_refused() -> None:
    builder = Builder(known_operators())
    with pytest.raises(LoweringError, match="no operation 'foo'"):
        builder.unary("foo", constant(normal(2)))


def test_recognition_asks_the_table_of_the_graph() -> None:
    builder = Builder(known_operators().with_specs(_MISH))
    x = Value((4,), "float32", name="x")
    parts = builder.unary("tanh", builder.unary("softplus", x, beta=1.0, threshold=20.0))
    graph = builder.graph([x], builder.binary("multiply", x, parts))
    assert [node.op for node in recognise(graph).nodes] == ["mish"]


@pytest.mark.parametrize("shape", [(1, 8, 3, 5), (8, 3, 5), (2, 3, 18, 2, 4)])
def test_pixel_shuffle_is_what_torch_does(shape: tuple[int, ...]) -> None:
    factor = 3 if shape[-3] == 18 else 2
    x = normal(*shape)
    made = lower(imported(relax_module(lambda bb, x: op.nn.pixel_shuffle(x, factor), [x])), board())
    wanted = torch.nn.functional.pixel_shuffle(torch.from_numpy(x), factor).numpy()
    np.testing.assert_array_equal(run_lowered(made, [x])[0], wanted)


def test_types_of_the_contract_are_known_and_others_refused() -> None:
    assert all(numeric_type(name).name == name for name in LIMITS.item_bytes)
    with pytest.raises(LoweringError, match=r"elements of type float8_e4m3fn.*onnxruntime"):
        numeric_type("float8_e4m3fn")


def test_reversed_sequences_are_what_onnx_runtime_gives(tmp_path: Path) -> None:
    """Packed sequences of bidirectional networks; relax has the operator, TVM's converters have not."""
    nodes = [
        helper.make_node("ReverseSequence", ["x", "lengths"], ["r"]),
        helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    x, lengths = normal(5, 3, 4), np.array([5, 1, 3])
    path = tmp_path / "m.onnx"
    path.write_bytes(graph(nodes, {"x": x, "lengths": lengths}, [value("y", x)]).SerializeToString())
    model = load_here(path, samples=[[x, lengths]])
    (case,) = model.golden
    (found,) = run_lowered(lower(model, board()), case.inputs)
    np.testing.assert_allclose(found, case.outputs[0], rtol=1e-6)
