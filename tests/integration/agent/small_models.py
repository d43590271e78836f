"""Small model files for the engine adapters: out = x + y * 2 over float32[2, 3], written by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np

SHAPE = (2, 3)
INPUTS = (
    np.arange(6, dtype="float32").reshape(SHAPE),
    np.arange(6, 12, dtype="float32").reshape(SHAPE),
)
EXPECTED = INPUTS[0] + INPUTS[1] * 2


def write_onnx(path: Path) -> Path:
    """x + y * 2, and x > y, as ONNX."""
    from onnx import TensorProto, helper, numpy_helper, save

    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["y", "two"], ["twice"]),
            helper.make_node("Add", ["x", "twice"], ["out"]),
            helper.make_node("Greater", ["x", "y"], ["more"]),
        ],
        "small",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("x", "y")],
        [
            helper.make_tensor_value_info("out", TensorProto.FLOAT, SHAPE),
            helper.make_tensor_value_info("more", TensorProto.BOOL, SHAPE),
        ],
        [numpy_helper.from_array(np.float32(2), "two")],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def write_pt2(path: Path) -> Path:
    """x + y * 2 and x > y as an exported program with a nested positional and a keyword argument."""
    import torch

    class Small(torch.nn.Module):
        def forward(self, pair, *, factor):
            return {"out": pair["x"] + pair["y"] * factor, "more": (pair["x"] > pair["y"],)}

    pair = {"x": torch.zeros(SHAPE), "y": torch.ones(SHAPE)}
    torch.export.save(torch.export.export(Small(), (pair,), {"factor": 2}), path)
    return path


def write_tflite(path: Path) -> Path:
    """x + y * 2 as a TFLite flatbuffer."""
    import flatbuffers
    import tflite

    builder = flatbuffers.Builder(1024)
    two = builder.CreateNumpyVector(np.frombuffer(np.float32(2).tobytes(), "uint8"))
    buffers = []
    for data in (None, two):
        tflite.BufferStart(builder)
        if data is not None:
            tflite.BufferAddData(builder, data)
        buffers.append(tflite.BufferEnd(builder))
    shapes = {"x": SHAPE, "y": SHAPE, "two": (1,), "twice": SHAPE, "out": SHAPE}
    tensors = [_tensor(builder, tflite, name, shape, int(name == "two")) for name, shape in shapes.items()]
    operators = [_operator(builder, tflite, 0, [1, 2], [3]), _operator(builder, tflite, 1, [0, 3], [4])]
    operators_vector = _offsets(builder, tflite.SubGraphStartOperatorsVector, operators)
    tensors_vector = _offsets(builder, tflite.SubGraphStartTensorsVector, tensors)
    inputs = builder.CreateNumpyVector(np.array([0, 1], "int32"))
    outputs = builder.CreateNumpyVector(np.array([4], "int32"))
    tflite.SubGraphStart(builder)
    tflite.SubGraphAddTensors(builder, tensors_vector)
    tflite.SubGraphAddInputs(builder, inputs)
    tflite.SubGraphAddOutputs(builder, outputs)
    tflite.SubGraphAddOperators(builder, operators_vector)
    graph = tflite.SubGraphEnd(builder)
    codes = []
    for code in (tflite.BuiltinOperator.MUL, tflite.BuiltinOperator.ADD):
        tflite.OperatorCodeStart(builder)
        tflite.OperatorCodeAddDeprecatedBuiltinCode(builder, code)
        tflite.OperatorCodeAddBuiltinCode(builder, code)
        tflite.OperatorCodeAddVersion(builder, 1)
        codes.append(tflite.OperatorCodeEnd(builder))
    codes_vector = _offsets(builder, tflite.ModelStartOperatorCodesVector, codes)
    graphs_vector = _offsets(builder, tflite.ModelStartSubgraphsVector, [graph])
    buffers_vector = _offsets(builder, tflite.ModelStartBuffersVector, buffers)
    tflite.ModelStart(builder)
    tflite.ModelAddVersion(builder, 3)
    tflite.ModelAddOperatorCodes(builder, codes_vector)
    tflite.ModelAddSubgraphs(builder, graphs_vector)
    tflite.ModelAddBuffers(builder, buffers_vector)
    builder.Finish(tflite.ModelEnd(builder), b"TFL3")
    path.write_bytes(bytes(builder.Output()))
    return path


def _tensor(builder, tflite, name, shape, buffer):
    text = builder.CreateString(name)
    dims = builder.CreateNumpyVector(np.array(shape, "int32"))
    tflite.TensorStart(builder)
    tflite.TensorAddName(builder, text)
    tflite.TensorAddShape(builder, dims)
    tflite.TensorAddType(builder, tflite.TensorType.FLOAT32)
    tflite.TensorAddBuffer(builder, buffer)
    return tflite.TensorEnd(builder)


def _operator(builder, tflite, code, inputs, outputs):
    taken = builder.CreateNumpyVector(np.array(inputs, "int32"))
    given = builder.CreateNumpyVector(np.array(outputs, "int32"))
    if code == 0:
        tflite.MulOptionsStart(builder)
        options, kind = tflite.MulOptionsEnd(builder), tflite.BuiltinOptions.MulOptions
    else:
        tflite.AddOptionsStart(builder)
        options, kind = tflite.AddOptionsEnd(builder), tflite.BuiltinOptions.AddOptions
    tflite.OperatorStart(builder)
    tflite.OperatorAddOpcodeIndex(builder, code)
    tflite.OperatorAddInputs(builder, taken)
    tflite.OperatorAddOutputs(builder, given)
    tflite.OperatorAddBuiltinOptionsType(builder, kind)
    tflite.OperatorAddBuiltinOptions(builder, options)
    return tflite.OperatorEnd(builder)


def _offsets(builder, start, offsets):
    start(builder, len(offsets))
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return builder.EndVector()
