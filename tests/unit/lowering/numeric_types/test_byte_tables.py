"""What follows from one byte is a table, with the bytes that the operations give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto

from host.lowering import lower
from host.model import ImportedModel, LoweredModel
from tests.unit.lowering.harness import board, functions, run_lowered
from tests.unit.lowering.numeric_types.quantized_models import model, node, pair

COUNT = 256


def constants(dtype: str) -> dict[str, np.ndarray]:
    """Scales and zero points of an input, of a value between, of a result, and a number."""
    moved = 0 if dtype == "uint8" else -128
    found: dict[str, np.ndarray] = {"half": np.array([0.5], "float32")}
    for name, scale, zero in (("x", 0.031, 130), ("m", 1.0 / 255, 0), ("y", 0.0163, 17)):
        found[f"{name}s"] = np.float32(scale)
        found[f"{name}z"] = np.array(zero + moved, dtype)
    return found


def quantised(folder: Path, dtype: str, nodes: Sequence[NodeProto]) -> ImportedModel:
    """A model from "xd", a dequantised byte, to "r", which is quantised."""
    around = [*pair("x", "xd", "xs", "xz"), *nodes, *pair("r", "y", "ys", "yz")]
    return model(folder, around, (COUNT, 1), (COUNT, 1), constants(dtype))


def gated(folder: Path, dtype: str) -> ImportedModel:
    """x * sigmoid(x), the sigmoid quantised: what quantisers write of SiLU."""
    nodes = [node("Sigmoid", ["xd"], ["s"]), *pair("s", "sd", "ms", "mz"), node("Mul", ["xd", "sd"], ["r"])]
    return quantised(folder, dtype, nodes)


def error_function(folder: Path, dtype: str) -> ImportedModel:
    """0.5 * (x + erf(x)), whose sum is of two values that follow from one byte."""
    nodes = [node("Erf", ["xd"], ["e"]), node("Add", ["xd", "e"], ["t"]), node("Mul", ["t", "half"], ["r"])]
    return quantised(folder, dtype, nodes)


def rescaled(folder: Path, dtype: str) -> ImportedModel:
    """Other scales for the same numbers: no more work than a table."""
    return quantised(folder, dtype, [node("Relu", ["xd"], ["r"])])


def two_tensors(folder: Path, dtype: str) -> ImportedModel:
    """What follows from one byte and from another one."""
    nodes = [
        node("Tanh", ["x"], ["t"]),
        *pair("t", "td", "ms", "mz"),
        node("Sigmoid", ["xd"], ["s"]),
        node("Mul", ["s", "td"], ["r"]),
    ]
    return quantised(folder, dtype, nodes)


def both(made: ImportedModel) -> tuple[LoweredModel, LoweredModel]:
    """As compiled for a processor that chooses among bytes, and for one that does not."""
    plain = board()
    tables = replace(plain, hardware=replace(plain.hardware, byte_tables="avx512vbmi"))
    return lower(made, tables), lower(made, plain)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("write", [gated, error_function])
def test_every_byte_gives_the_same_byte(
    tmp_path: Path, write: Callable[[Path, str], ImportedModel], dtype: str
) -> None:
    made, numbers = write(tmp_path, dtype), constants(dtype)
    x = ((np.arange(COUNT) - 130) * numbers["xs"]).astype("float32").reshape(COUNT, 1)
    tabulated, computed = both(made)
    assert any("byte_table" in name for name in functions(tabulated))
    assert not any("sigmoid" in name or "erf" in name for name in functions(tabulated))
    assert not any("byte_table" in name for name in functions(computed))
    (found,), (wanted,) = run_lowered(tabulated, [x]), run_lowered(computed, [x])
    steps = np.abs(found - wanted) / numbers["ys"]
    # A number between two bytes may fall to either, by the last digit of an exponential.
    assert len(np.unique(found)) > 100
    assert steps.max() < 1.5 and (steps > 0.5).sum() <= 2


@pytest.mark.parametrize("write", [rescaled, two_tensors])
def test_little_work_and_several_tensors_stay(
    tmp_path: Path, write: Callable[[Path, str], ImportedModel]
) -> None:
    made = write(tmp_path, "uint8")
    tabulated, computed = both(made)
    assert functions(tabulated) == functions(computed)
