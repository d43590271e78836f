"""Numbers that are none, infinite or at the end of their type give what they give in ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.memory_check.compiled import outputs_in_a_child, save
from tests.memory_check.special_values import DIFFERENT, FAMILIES, Family


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_results_are_those_of_onnx_runtime(family: Family, tmp_path: Path) -> None:
    wanted = _by_onnx_runtime(family, tmp_path / "reference.onnx")
    kinds = {name: (array.dtype, array.shape) for name, array in zip(family.outputs, wanted, strict=True)}
    path = save(tmp_path / "model.onnx", family.nodes, family.inputs, kinds, family.opset)
    given = list(family.inputs.values())
    made = outputs_in_a_child(path, given, given, wanted)
    different = {
        name: _first(have, want)
        for name, have, want in zip(family.outputs, made, wanted, strict=True)
        if not _same(have, want)
    }
    unknown = [f"{name}: {what}" for name, what in different.items() if (family.name, name) not in DIFFERENT]
    assert not unknown, "\n".join(unknown)


def _by_onnx_runtime(family: Family, path: Path) -> list[np.ndarray]:
    """What ONNX Runtime gives, which infers the types of outputs from a model that does not declare them."""
    save(path, family.nodes, family.inputs, {}, family.opset)
    model = onnx.load(path)
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in family.outputs)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(family.outputs, dict(family.inputs))


def _same(have: np.ndarray, want: np.ndarray) -> bool:
    return not _apart(have, want).any()


def _apart(have: np.ndarray, want: np.ndarray) -> np.ndarray:
    assert (have.dtype, have.shape) == (want.dtype, want.shape)
    if have.dtype.kind != "f":
        return have != want
    return ~np.isclose(have.astype(float), want.astype(float), rtol=1e-4, atol=1e-6, equal_nan=True)


def _first(have: np.ndarray, want: np.ndarray) -> str:
    places = np.argwhere(_apart(have, want))
    shown = [f"{tuple(at.tolist())}: {have[tuple(at)]} for {want[tuple(at)]}" for at in places[:4]]
    return f"{len(places)} of {have.size}, " + "; ".join(shown)
