"""A model with state in the native executor."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import device_agent.runtime as runtime
import sdk
from device_agent.errors import AgentError
from host import bundle
from tests import tiny_decoder as tiny
from tests.integration.functions import check_functions
from tests.integration.native.process import Executor
from tests.little_memory import with_free_memory
from tests.shared_cache import executor_for
from tests.signing import reseal
from tests.tiny_bundle import write_tiny

# The first test may wait for the build.
pytestmark = pytest.mark.timeout(900)


def test_state_is_zeros_at_first_and_kept_from_call_to_call(tmp_path, device):
    folder = write_tiny(tmp_path)
    with device.open_session("tvm", threads=1) as session:
        session.load(folder)
        [found] = session.run([np.array([2], "int32"), np.array([2], "int32")])
        np.testing.assert_array_equal(found, tiny.logits([0, 0, 2]))
        for case in bundle.golden_cases(folder, bundle.load(folder)):
            [found] = session.run(case.inputs)
            np.testing.assert_array_equal(found, case.outputs[0])
        profile = session.profile([np.array([7], "int32"), np.array([4], "int32")], 1)
        assert set(profile) >= {"step", "score"}
        # The logits alone are made in a call; what lies between the kernels was made before.
        assert profile["vm.builtin.alloc_tensor"].calls == 1
        [found] = session.run([np.array([2], "int32"), np.array([5], "int32")])
        np.testing.assert_array_equal(found, tiny.logits([3, 1, 4, 1, 7, 2]))


def test_texts_are_written_with_a_model_on_it(tmp_path, device, monkeypatch):
    folder, prompt = write_tiny(tmp_path), [place % 12 for place in range(19)]
    monkeypatch.setattr("host.transport.connect", lambda name: nullcontext(device))
    with sdk.load_language_model(folder, device="native") as model:
        assert list(model.generate(prompt, max_tokens=3)) == tiny.following(prompt, 3)
        # It begins as the text before.
        assert list(model.generate([*prompt, 7], max_tokens=1)) == tiny.following([*prompt, 7], 1)
        assert model.timing.reused_tokens == 19


@pytest.mark.filterwarnings("ignore:.*is loaded without trust")
def test_a_state_that_there_is_no_memory_for_is_refused_before_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_tiny(tmp_path)
    reseal(folder, state=[{"name": "seen", "shape": [15 << 15, 1 << 15], "dtype": "float32"}])
    with_free_memory(tmp_path, 3 << 20, monkeypatch)
    said = (
        "its weights and its state take 61440.0 MiB, this machine has 3072.0 MiB free: close other programs"
    )
    with Executor([str(executor_for("x86_64"))], tmp_path / "session") as running:
        assert said in running.ask("load", path=str(folder), trust="unsigned")[0]["error"]["message"]
    with pytest.raises(AgentError, match=said):
        runtime.load(folder, trust="unsigned")


def test_functions_beside_main_are_run_and_verified(tmp_path, device):
    check_functions(device, tmp_path)
