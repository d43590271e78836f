"""Models in bfloat16, from the file to verified outputs on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import sdk
from host import bundle
from host.compile.device_profile import target_profile
from host.deploy import DeployOptions, compile_bundle, deploy
from host.errors import UserError
from host.options import CompileOptions
from host.transport import connect
from tests.integration import small_models
from tests.unit.schedules.cpu import bfloat16_cases as cases

needs_the_instruction = pytest.mark.skipif(not cases.runs_here(), reason="no AVX-512 BF16")


def transformer(path: Path) -> Path:
    """A block of attention and two dense layers, of a fixed length."""
    return small_models.encoder(path, hidden=64, heads=4)


@needs_the_instruction
@pytest.mark.parametrize(
    ("make", "shapes"),
    [(small_models.convnet, {}), (transformer, {"seq": (24,)})],
    ids=["convnet", "transformer"],
)
def test_a_model_is_verified_and_keeps_its_interface(
    make: Callable[[Path], Path], shapes: dict[str, tuple[int, ...]], tmp_path: Path
) -> None:
    out = tmp_path / "bundle"
    result = deploy(
        DeployOptions(
            make(tmp_path / "model.onnx"),
            dtype="bf16",
            backend="tvm",
            shapes=shapes,
            threads=1,
            rounds=4,
            bundle=out,
        )
    )
    assert result.verification.passed
    assert 1e-5 < result.verification.max_rel_err <= result.verification.tolerance
    assert 5e-2 <= result.verification.tolerance <= 0.2
    manifest = bundle.load(out)
    assert (manifest.backend, manifest.dtype) == ("tvm", "bf16")
    rules = {kernel.rule for kernel in manifest.kernels}
    fast = target_profile("local", 1).hardware.has_fast_bfloat16_layers
    assert ("dot" in rules) == fast and "default" not in {kernel.source for kernel in manifest.kernels}
    # Weights of fewer than a thousand numbers are halves only where dot products read them.
    large = any(one.dtype == "bfloat16" or np.prod(one.shape) >= 1024 for one in manifest.parameters)
    assert any(one.dtype == "bfloat16" for one in manifest.parameters) == (fast or large)
    [first, *_] = bundle.golden_cases(out, manifest)
    with sdk.load(out) as model:
        names = [spec.name for spec in model.signature.inputs]
        made = model.run(dict(zip(names, first.inputs, strict=True)))
    for spec, golden in zip(manifest.signature.outputs, first.outputs, strict=True):
        assert made[spec.name].dtype == golden.dtype == np.dtype(spec.dtype)


def test_a_device_without_the_instruction_is_refused_before_any_work(tmp_path: Path) -> None:
    options = CompileOptions(small_models.convnet(tmp_path / "model.onnx"), dtype="bf16")
    with pytest.raises(UserError, match=r"--dtype bf16: .* has no AVX-512 BF16"):
        compile_bundle(options, "raspberry_pi_5", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@needs_the_instruction
def test_the_device_says_that_it_has_the_instruction() -> None:
    with connect("local") as device:
        assert "avx512_bf16" in device.describe().features
