"""Files that ONNX Runtime's own tools have rewritten are compiled and verified."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

from host import bundle
from host.deploy import DeployOptions, deploy
from tests.integration import small_models


class Samples(CalibrationDataReader):
    """Some images."""

    def __init__(self) -> None:
        draw = np.random.default_rng(0)
        self._left = [draw.standard_normal((1, 3, 16, 16)).astype(np.float32) for _ in range(4)]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return {"image": self._left.pop()} if self._left else None


def optimised(folder: Path) -> Path:
    """A convolutional network as a session has rewritten it."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    onnxruntime.InferenceSession(small_models.convnet(folder / "convnet.onnx"), options)
    return folder / "optimised.onnx"


def in_operators(folder: Path) -> Path:
    """A convolutional network whose operators are quantised ones."""
    source, target = small_models.convnet(folder / "convnet.onnx"), folder / "quantised.onnx"
    quantize_static(source, target, Samples(), quant_format=QuantFormat.QOperator, per_channel=True)
    return target


def in_four_bits(folder: Path) -> Path:
    """An encoder whose weights have four bits."""
    source = small_models.encoder(folder / "encoder.onnx", hidden=64, heads=4)
    quantiser = MatMulNBitsQuantizer(onnx.load(source), block_size=32, is_symmetric=False)
    quantiser.process()
    quantiser.model.save_model_to_file(str(folder / "four_bits.onnx"))
    return folder / "four_bits.onnx"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("make", "shapes", "written"),
    [
        (optimised, {}, {"FusedConv"}),
        (in_operators, {}, {"QLinearConv", "QGemm"}),
        (in_four_bits, {"seq": (24,)}, {"MatMulNBits"}),
    ],
    ids=["optimised", "in_operators", "in_four_bits"],
)
def test_a_rewritten_file_is_compiled_and_verified(
    make: Callable[[Path], Path], shapes: dict[str, tuple[int, ...]], written: set[str], tmp_path: Path
) -> None:
    file, out = make(tmp_path), tmp_path / "bundle"
    operators = {node.op_type for node in onnx.load(file).graph.node}
    assert written <= operators, operators
    options = DeployOptions(file, backend="tvm", shapes=shapes, threads=1, rounds=4, bundle=out)
    assert deploy(options).verification.passed
    kernels = bundle.load(out).kernels
    assert kernels and "default" not in {kernel.source for kernel in kernels}
