"""Bundles of models with state, and of language models, on the virtual machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import device_agent.runtime as runtime
from host import bundle
from tests import tiny_decoder as tiny
from tests.integration.functions import check_functions
from tests.tiny_bundle import write_tiny

pytestmark = pytest.mark.usefixtures("trusted_here")


@pytest.fixture(scope="session")
def tiny_bundle(tmp_path_factory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


def test_state_is_kept_from_call_to_call(tiny_bundle):
    model = runtime.load(tiny_bundle)
    prompt = [3, 1, 4, 1, 5]
    for _ in range(2):
        # Position 0 starts anew, whatever the state holds.
        for place, token in enumerate(prompt):
            given = [np.array([token], "int32"), np.array([place], "int32")]
            found = model.run(given)["logits"]
            np.testing.assert_array_equal(found, tiny.logits(prompt[: place + 1]))


def test_state_is_zeros_at_first_and_after_a_reset(tiny_bundle):
    model = runtime.load(tiny_bundle)
    third = [np.array([2], "int32"), np.array([2], "int32")]
    np.testing.assert_array_equal(model.run(third)["logits"], tiny.logits([0, 0, 2]))
    model.run([np.array([9], "int32"), np.array([0], "int32")])
    np.testing.assert_array_equal(model.run(third)["logits"], tiny.logits([9, 0, 2]))
    model.machine.reset()
    np.testing.assert_array_equal(model.run(third)["logits"], tiny.logits([0, 0, 2]))


def test_a_session_of_an_agent_keeps_state(tiny_bundle, device):
    manifest = bundle.load(tiny_bundle)
    with device.open_session("tvm", threads=1) as session:
        session.load(tiny_bundle)
        for case in bundle.golden_cases(tiny_bundle, manifest):
            [found] = session.run(case.inputs)
            np.testing.assert_array_equal(found, case.outputs[0])
        inputs = [np.array([7], "int32"), np.array([4], "int32")]
        profile = session.profile(inputs, 1)
        assert set(profile) >= {"step", "score"}
        # The logits alone are made in a call; what lies between the kernels was made before.
        assert profile["vm.builtin.alloc_tensor"].calls == 1
        assert [call.kernel for call in session.intermediates()] == ["step", "score"]
        # The profiled runs wrote the token to the state, as any run does.
        [found] = session.run([np.array([2], "int32"), np.array([5], "int32")])
        np.testing.assert_array_equal(found, tiny.logits([3, 1, 4, 1, 7, 2]))


def test_memory_counts_the_state(tiny_bundle):
    memory = bundle.load(tiny_bundle).memory
    interface = 4 + 4 + 4 * tiny.VOCABULARY
    # Behind it, what lies between the two kernels of each entry.
    assert memory.activations_bytes >= interface + 4 * tiny.CONTEXT
    assert memory.weights_bytes == 4


def test_functions_beside_main_are_run_and_verified(tmp_path, device):
    check_functions(device, tmp_path)
