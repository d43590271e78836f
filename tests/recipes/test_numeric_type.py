"""Three entries are all that a numeric type needs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.integration.small_models import save
from tests.recipes import ROOT, copy, entries, run

TYPES = "host/lowering/types.py"
SIZES = "device_agent/contract/limits.json"
TOLERANCES = "host/compare/verification.py"
# The line of each table in front of which the entry goes.
BEFORE = {
    TYPES: '        NumericType("float32",',
    SIZES: '    "float64": 8',
    TOLERANCES: '    "float16": 1e-2,',
}
# A model from its file to verified outputs, in a process of its own.
USE = """
import sys
from pathlib import Path
import ml_dtypes
import numpy as np
import host.execution.without_torch
import sdk
from host.bundle import golden_cases, load
from host.compare.verification import deviation
from host.deploy import DeployOptions, deploy

assert Path(host.__file__).is_relative_to(sys.argv[1]), host.__file__
model, folder = sys.argv[2], Path("bundle")
result = deploy(DeployOptions(Path(model), threads=1, rounds=4, backend="tvm", bundle=folder))
assert result.verification.passed, result.verification
[case, *_] = golden_cases(folder, load(folder))
assert deviation(0, 0, case.outputs[0], case.outputs[0]).tolerance == 0.25
assert {str(one.dtype) for one in (*case.inputs, *case.outputs)} == {"float8_e5m2"}
x = case.inputs[0]
with sdk.load(folder) as found:
    y = found.run(x)["y"]
assert y.dtype == ml_dtypes.float8_e5m2 and y.shape == (4, 8)
w = np.load("w.npy")
wanted = np.maximum(x.astype(np.float32) @ w, 0)
# Two bits of mantissa: half a step is an eighth.
np.testing.assert_allclose(y.astype(np.float32), wanted, rtol=0.126, atol=1e-4)
np.savez("x.npz", x=x.view("V1"))
Path("y.bin").write_bytes(y.tobytes())
"""


def followed() -> dict[str, str]:
    """What the recipe changes in the product."""
    changed = {}
    for path, line in BEFORE.items():
        text = (ROOT / path).read_text()
        assert text.count(line) == 1, path
        changed[path] = text.replace(line, entries()[path] + line)
    return changed


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A product with weights and a relu between casts from and to float8_e5m2."""
    weights = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
    np.save(tmp_path / "w.npy", weights)
    coarse = TensorProto.FLOAT8E5M2
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["a", "w"], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Cast", ["c"], ["y"], to=coarse),
    ]
    shapes = {"x": [4, 16], "y": [4, 8]}
    x, y = (helper.make_tensor_value_info(name, coarse, shape) for name, shape in shapes.items())
    return save(tmp_path / "coarse.onnx", nodes, [x], [y], {"w": weights}, opset=21)


def test_the_recipe_is_three_lines() -> None:
    """As docs/extending.md counts it."""
    assert [len(entries()[path].splitlines()) for path in BEFORE] == [1, 1, 1]


def test_a_model_is_verified_and_run(model: Path, tmp_path: Path) -> None:
    product = tmp_path / "product"
    product.mkdir()
    copy(product, followed())
    done = run(product, tmp_path, "-c", USE, str(product), str(model))
    assert done.returncode == 0, done.stderr
    command = ["-m", "sdk.cli", "run", "bundle", "--input", "x.npz", "--output", "y.npz"]
    done = run(product, tmp_path, *command)
    assert done.returncode == 0, done.stderr
    assert "float8_e5m2[4, 8]" in done.stdout
    with np.load(tmp_path / "y.npz") as arrays:
        assert arrays["y"].tobytes() == (tmp_path / "y.bin").read_bytes()


def test_without_the_entries_the_type_is_refused_by_name(model: Path, tmp_path: Path) -> None:
    done = run(ROOT, tmp_path, *f"-m sdk.cli compile {model} -o bundle --backend tvm".split())
    assert done.returncode != 0
    assert "float8_e5m2" in done.stderr
