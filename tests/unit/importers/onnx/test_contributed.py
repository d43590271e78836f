"""Operators that ONNX Runtime adds give what ONNX Runtime computes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from host.errors import ImportFailed
from host.importers import load_here as load
from host.importers.golden import run_unoptimised
from host.importers.onnx.contributed import DOMAIN, expansions
from host.lowering import lower
from tests.unit.importers.harness import check
from tests.unit.importers.onnx.contributed_nodes import CASES, Case, floats, integers, signed, unsigned
from tests.unit.importers.onnx.grouped_attention_nodes import GROUPED_ATTENTION, grouped_attention
from tests.unit.lowering.harness import board, functions, run, run_cases

_ALL = (*CASES, *GROUPED_ATTENTION)
_ELEMENTS = {"float": 1, "uint8": 2, "int8": 3, "uint16": 4, "int32": 6}


def write(case: Case, path: Path) -> Path:
    """A file whose outputs have the types that ONNX Runtime infers."""
    model = case.model()
    session = onnxruntime.InferenceSession(model.SerializeToString())
    del model.graph.output[:]
    for value in session.get_outputs():
        element = _ELEMENTS[value.type.removeprefix("tensor(").removesuffix(")")]
        model.graph.output.append(helper.make_tensor_value_info(value.name, element, value.shape))
    path.write_bytes(model.SerializeToString())
    return path


def named(name: str) -> Case:
    return next(case for case in _ALL if case.name == name)


@pytest.mark.parametrize("case", _ALL, ids=lambda case: case.name)
def test_outputs_are_those_of_onnxruntime(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = []

    def noted(engine: str, path: Path, inputs: Any) -> Any:
        results = run_unoptimised(engine, path, inputs)
        files.append(path)
        return results

    monkeypatch.setattr("host.importers.onnx.importer.run_unoptimised", noted)
    made = load(write(case, tmp_path / "one.onnx"))
    assert made.module is not None, made.reason
    outputs = run_cases(made.module, [golden.inputs for golden in made.golden])
    for golden, results in zip(made.golden, outputs, strict=True):
        for found, wanted in zip(results, golden.outputs, strict=True):
            assert found.dtype == wanted.dtype and found.shape == wanted.shape
            # A quantised result may round to the other side of the middle between two steps.
            bound = (
                1
                if wanted.dtype.kind == "u" or wanted.dtype == np.int8
                else 1e-5 * max(1.0, float(np.abs(wanted).max()))
            )
            np.testing.assert_allclose(found.astype(float), wanted.astype(float), rtol=0, atol=bound)
    # ONNX Runtime runs the standard operators too, except for numbers of 16 bits in this version of them.
    assert {path.name for path in files} == {"one.onnx" if "words" in case.name else "model.onnx"}


def test_every_expansion_has_a_case() -> None:
    assert {case.operator for case in _ALL} == set(expansions())


def test_layers_are_those_of_the_file(tmp_path: Path) -> None:
    model = named("attention").model()
    model.graph.node[0].name = "encoder/attention"
    model.graph.output[0].type.CopyFrom(model.graph.input[0].type)
    (tmp_path / "one.onnx").write_bytes(model.SerializeToString())
    made = load(tmp_path / "one.onnx")
    assert made.module is not None and "encoder_attention" in made.module.script()


REFUSED = {
    "rotary": ("attention", {"do_rotary": 1}, "do_rotary has no conversion"),
    "heads": ("attention", {"num_heads": 5}, r"5 heads of sizes \[16, 16, 16\] have no conversion"),
    "no_heads": ("heads", {"num_heads": 0}, "0 heads of 16 elements have no conversion"),
    "text": ("attention", {"num_heads": "four"}, "its inputs or attributes are none of this operator's"),
    "activation": ("conv_clip", {"activation": "Mish"}, "activation 'Mish' has no conversion"),
    "parameters": ("conv_clip", {"activation_params": [1.0] * 9}, "activation 'Clip' has no conversion"),
    "batch": ("product", {"transBatchA": 1}, "transBatchA has no conversion"),
    "bits": ("four_bits", {"bits": 3}, "weights of 3 bits in blocks of 32 have no conversion"),
    "block": ("four_bits", {"block_size": 24}, "weights of 4 bits in blocks of 24 have no conversion"),
    "groups": ("prompt", {"kv_num_heads": 3}, "4 heads of queries and 3 of keys in 64 elements have no"),
    "window": ("prompt", {"local_window_size": 0}, "local_window_size 0 with causal 1 has no conversion"),
    "cache": ("prompt", {"kv_cache_bit_width": 8}, "kv_cache_bit_width has no conversion"),
    "sliding": ("window_of_a_step", {"sliding_window_cache": 1}, "sliding_window_cache has no conversion"),
    "depth": ("four_bits", {"K": 1 << 40}, r"weights of shape \[6, 2, 16\] are none of 1099511627776 by 6"),
}


@pytest.mark.parametrize(("name", "changed", "reason"), REFUSED.values(), ids=REFUSED)
def test_other_forms_are_refused_by_name(
    name: str, changed: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    case = named(name)
    case = replace(case, attributes={**case.attributes, **changed})
    check_refused(case, reason, tmp_path)


def check_refused(case: Case, reason: str, folder: Path) -> None:
    model = case.model()
    for output in model.graph.output:
        output.type.CopyFrom(helper.make_tensor_type_proto(1, None))
    (folder / "one.onnx").write_bytes(model.SerializeToString())
    given = [list(case.inputs.values())]
    with pytest.raises(ImportFailed, match=f"operator {DOMAIN}.{case.operator}: {reason}"):
        load(folder / "one.onnx", samples=given, reference=lambda engine, path, inputs: [[floats(1)]])


def test_a_mask_of_another_shape_is_refused(tmp_path: Path) -> None:
    case = named("attention_of_lengths")
    constants = {**case.constants, "m": integers(2, 3, 4, 5, 6)}
    reason = r"a mask of shape \[3, 4, 5, 6\] has no conversion"
    check_refused(replace(case, constants=constants), reason, tmp_path)


def test_a_mask_of_many_places_is_not_written(tmp_path: Path) -> None:
    case = named("attention")
    inputs = {"x": np.zeros((1, 1 << 14, 16), np.float32)}
    attributes = {**case.attributes, "unidirectional": 1}
    reason = r"16384 positions have no conversion \(at most 8192 have\)"
    check_refused(replace(case, inputs=inputs, attributes=attributes), reason, tmp_path)


def test_an_operator_that_is_not_known_is_named(tmp_path: Path) -> None:
    case = replace(named("attention"), operator="SparseAttention")
    model = case.model()
    model.graph.output[0].type.CopyFrom(model.graph.input[0].type)
    (tmp_path / "one.onnx").write_bytes(model.SerializeToString())
    given = [list(case.inputs.values())]
    made = load(tmp_path / "one.onnx", samples=given, reference=lambda *_: [list(case.inputs.values())])
    assert made.module is None and "com.microsoft.SparseAttention has no conversion" in made.reason


def test_a_cache_without_a_known_size_is_refused(tmp_path: Path) -> None:
    case = named("prompt")
    inputs = {**case.inputs, "tl": case.constants["tl"]}
    reason = "a total_sequence_length that is no constant has no conversion"
    check_refused(replace(case, inputs=inputs, constants={}), reason, tmp_path)


def test_more_tokens_than_a_cache_has_room_for_are_refused(tmp_path: Path) -> None:
    case = grouped_attention("rows", rows=2, length=3, room=6, total=9)
    check_refused(case, "3 of 9 tokens in 2 rows with a cache of 6 have no conversion", tmp_path)


def test_lengths_are_those_that_a_mask_of_tokens_has(tmp_path: Path) -> None:
    """As exporters of language models write it: a sum and the shape of the mask."""
    case = grouped_attention("step", length=1, room=6, total=7)
    inputs = {**case.inputs, "attention_mask": np.ones((1, 7), np.int64)}
    del inputs["sl"]
    model = replace(case, inputs=inputs, constants={}).model()
    made = [
        helper.make_node("ReduceSum", ["attention_mask", "axis"], ["sum"], keepdims=0),
        helper.make_node("Sub", ["sum", "axis"], ["last"]),
        helper.make_node("Cast", ["last"], ["sl"], to=6),
        helper.make_node("Shape", ["attention_mask"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "column"], ["width"]),
        helper.make_node("Cast", ["width"], ["tl"], to=6),
        *model.graph.node,
    ]
    del model.graph.node[:]
    model.graph.node.extend(made)
    for name, value in {"axis": np.array([1]), "column": np.array(1)}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    shapes = ([1, 1, 64], [1, 2, 7, 16], [1, 2, 7, 16])
    for output, shape in zip(model.graph.output, shapes, strict=True):
        output.type.CopyFrom(helper.make_tensor_type_proto(1, shape))
    (tmp_path / "one.onnx").write_bytes(model.SerializeToString())
    # Inputs are drawn, as for a user's file.
    check(load(tmp_path / "one.onnx"))


def test_types_are_known_from_node_to_node(tmp_path: Path) -> None:
    """The file has no types of inner values, and the standard's inference stops at the first operator."""
    one, nodes = floats(2, 3, 8), []
    value = "x"
    for layer in range(20):
        nodes += [
            helper.make_node("BiasGelu", [value, "b"], [f"g{layer}"], domain=DOMAIN),
            helper.make_node("Transpose", [f"g{layer}"], [f"t{layer}"], perm=[0, 2, 1]),
            helper.make_node("FusedMatMul", [f"t{layer}", "w"], [f"m{layer}"], domain=DOMAIN, transA=1),
        ]
        value = f"m{layer}"
    shaped = [helper.make_tensor_value_info(name, 1, [2, 3, 8]) for name in ("x", value)]
    weights = {"b": floats(8), "w": np.eye(8, dtype=np.float32)}
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "deep", shaped[:1], shaped[1:], tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    (tmp_path / "deep.onnx").write_bytes(model.SerializeToString())
    made = load(tmp_path / "deep.onnx", samples=[[one]])
    assert made.module is not None, made.reason
    np.testing.assert_allclose(run(made.module, [one])[0], made.golden[0].outputs[0], atol=1e-5)


def test_quantised_products_have_the_spread_of_their_roundings(tmp_path: Path) -> None:
    """As written, ONNX Runtime computes them in integers; in real numbers some results are one step off."""
    node = helper.make_node("QLinearMatMul", ["a", "as", "az", "b", "bs", "bz", "cs", "cz"], ["c"])
    out = helper.make_node("DequantizeLinear", ["c", "cs", "cz"], ["y"])
    constants = {"as": np.float32(0.1), "az": np.uint8(128), "b": signed(64, 64), "bs": np.float32(0.1)}
    constants |= {"bz": np.int8(0), "cs": np.float32(1.0), "cz": np.uint8(128)}
    tensors = [onnx.numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    inputs = [helper.make_tensor_value_info("a", 2, [256, 64])]
    graph = helper.make_graph(
        [node, out], "q", inputs, [helper.make_tensor_value_info("y", 1, [256, 64])], tensors
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    (tmp_path / "q.onnx").write_bytes(model.SerializeToString())
    made = load(tmp_path / "q.onnx", samples=[[unsigned(256, 64)]])
    assert 0.004 < made.golden[0].spread < 0.02


def packed(name: str, bits: int, zeros: bool, element: str = "float32") -> Case:
    """A product whose weights are whole blocks of 32."""
    constants = {"b": unsigned(6, 2, 4 * bits), "s": (floats(12) / 8).astype(element)}
    constants |= {"z": unsigned(6 * bits // 4)} if zeros else {}
    sizes = {"K": 64, "N": 6, "block_size": 32, "bits": bits}
    inputs = {"a": floats(2, 3, 64).astype(element)}
    return Case(name, "MatMulNBits", inputs, constants, attributes=sizes)


def values_of(case: Case) -> np.ndarray:
    """The weights (K, N) by the definition of the operator."""
    bits, stored = case.attributes["bits"], case.constants["b"]
    numbers = stored.reshape(6, -1)
    if bits == 4:
        numbers = np.stack([numbers & 15, numbers >> 4], -1).reshape(6, -1)
    zero = np.full((6, 2), 1 << (bits - 1))
    if "z" in case.constants and bits == 8:
        zero = case.constants["z"].reshape(6, 2)
    elif "z" in case.constants:
        zero = np.stack([case.constants["z"] & 15, case.constants["z"] >> 4], -1)
    scales = case.constants["s"].reshape(6, 2).astype(np.float64)
    real = (numbers.reshape(6, 2, 32) - zero.astype(np.float64)[..., None]) * scales[..., None]
    return real.reshape(6, 64).T


PACKED = (
    packed("four", 4, zeros=False),
    packed("four_with_zeros", 4, zeros=True),
    packed("eight", 8, zeros=False),
    packed("eight_with_zeros", 8, zeros=True),
    packed("four_in_halves", 4, zeros=True, element="float16"),
)


@pytest.mark.parametrize("case", PACKED, ids=lambda case: case.name)
def test_weights_of_whole_blocks_stay_packed(case: Case, tmp_path: Path) -> None:
    model = case.model()
    element = helper.np_dtype_to_tensor_dtype(case.inputs["a"].dtype)
    model.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(element, [2, 3, 6]))
    (tmp_path / "one.onnx").write_bytes(model.SerializeToString())
    wanted = (case.inputs["a"].astype(np.float64) @ values_of(case)).astype(case.inputs["a"].dtype)
    given = [list(case.inputs.values())]
    made = load(tmp_path / "one.onnx", samples=given, reference=lambda *_: [[wanted]])
    check(made, 1e-4 if element == 1 else 2e-3)
    lowered = lower(made, board())
    assert any("packed_quantised_dense" in name for name in functions(lowered))
    # About as many bytes as in the file: panels have whole vectors.
    lanes = board().hardware.lanes
    held = sum(np.asarray(one).nbytes for one in lowered.parameters)
    assert held <= sum(one.nbytes for one in case.constants.values()) * 2 * -(-6 // lanes) * lanes / 6


def test_shapes_behind_packed_weights_are_known(tmp_path: Path) -> None:
    """The standard's inference of shapes does not know the operator."""
    case = packed("four", 4, zeros=False)
    model = case.model()
    model.graph.node[0].output[0] = "m"
    model.graph.node.extend(
        [
            helper.make_node("Shape", ["m"], ["size"]),
            helper.make_node("Gather", ["size", "last"], ["width"]),
            helper.make_node("Concat", ["all", "width"], ["flat"], axis=0),
            helper.make_node("Reshape", ["m", "flat"], ["y0"]),
        ]
    )
    for name, value in {"last": [2], "all": [-1]}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(value), name))
    model.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(1, [6, 6]))
    (tmp_path / "one.onnx").write_bytes(model.SerializeToString())
    made = check(load(tmp_path / "one.onnx", samples=[list(case.inputs.values())]))
    assert made.golden[0].outputs[0].shape == (6, 6)
