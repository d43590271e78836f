"""Chains of convolutions in bands of rows, in the native executor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from host import bundle
from host.compare.verification import verify
from host.deploy import compile_bundle
from host.options import CompileOptions
from host.transport.device import Device, enrolled
from tests.integration import small_models

# The first test may wait for the build.
pytestmark = pytest.mark.timeout(900)


def test_two_threads_share_the_bands_of_a_chain(device: Device, tmp_path: Path) -> None:
    model = small_models.inverted_residuals(tmp_path / "net.onnx")
    options = CompileOptions(model, backend="tvm", threads=2)
    # A board whose caches are known, so that the chains do not depend on this machine.
    manifest = compile_bundle(options, "x86_64-v3", tmp_path / "bundle")
    cases = bundle.golden_cases(tmp_path / "bundle", manifest)
    with enrolled(device).open_session("tvm", threads=2) as session:
        session.load(tmp_path / "bundle")
        kernels = [call.kernel for call in session.intermediates(cases[0].inputs)]
        assert sum("chain" in kernel for kernel in kernels) == 2
        found, _ = verify(session, manifest.typed_signature(), cases)
        assert found.passed
        # Whichever thread computes a band: the same sums.
        [first], [again] = session.run(cases[0].inputs), session.run(cases[0].inputs)
        np.testing.assert_array_equal(first, again)
