"""Compiled models in the native executor: chains of convolutions on two threads, and a long text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sdk
from device_agent import runtime
from host import bundle
from host.compare.verification import verify
from host.deploy import compile_bundle
from host.options import CompileOptions
from host.transport.device import Device, enrolled
from tests.integration import small_models
from tests.integration.agent.conftest import resident_mb
from tests.integration.native.process import Executor
from tests.shared_cache import executor_for
from tests.signing import trust
from tests.unit.importers.decoders.models import save

PROMPT = [7, 101, 42, 42, 9]
TOKENS, WARM = 500, 100

# The executor may have to be built.
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


@pytest.mark.long
def test_a_text_of_500_tokens_is_that_of_python_and_takes_no_more_memory(tmp_path: Path) -> None:
    save(tmp_path / "tiny", "qwen3", head_dim=32, max_position_embeddings=512)
    made = tmp_path / "bundle"
    sdk.compile(tmp_path / "tiny", output=made, threads=1, context_tokens=512, quantize="int4")
    trust(tmp_path / "trust.json")
    model = runtime.load(str(made), keys=str(tmp_path / "trust.json"))
    wanted = [int(token) for token in model.generate(PROMPT, max_tokens=TOKENS, speculate=False)]
    assert len(wanted) == TOKENS
    with Executor([str(executor_for("x86_64"))], tmp_path / "session") as running:
        assert running.greedy(made, PROMPT, WARM) == wanted[:WARM]
        before = resident_mb(running.pid)
        tokens = [*PROMPT, *wanted[:WARM]]
        for place in range(len(tokens) - 1, len(PROMPT) + TOKENS - 1):
            inputs = (np.array([tokens[place]], np.int32), np.array([place], np.int32))
            reply, outputs = running.ask("run", inputs)
            assert reply["ok"], reply
            tokens.append(int(outputs[0].argmax()))
        assert tokens[len(PROMPT) :] == wanted
        # Pages of the state come when they are touched first; logits that stayed would take 0.2 MB.
        assert resident_mb(running.pid) <= before + 0.25
