"""What a session of either executor does with the functions that a language model has beside main."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from host import bundle
from host.compare.verification import Verification, verify
from host.errors import DeviceError
from host.transport.device import Device
from tests import tiny_decoder as tiny
from tests.tiny_bundle import write_tiny


def verified(device: Device, folder: Path) -> Verification:
    """Whether a bundle's golden cases come out."""
    manifest = bundle.load(folder)
    with device.open_session("tvm", threads=1) as session:
        session.load(folder)
        verdict, _ = verify(session, manifest.typed_signature(), bundle.golden_cases(folder, manifest))
    return verdict


def check_functions(device: Device, folder: Path) -> None:
    """Every function computes on main's state, a wrong one is named, and what is none is refused."""
    right = write_tiny(folder / "right", several=True, long_prefilling=tiny.long_steps)
    assert [case.function for case in bundle.golden_cases(right, bundle.load(right))] == [
        *[""] * 4, "prefill", "", "verify", "", "together", "together", "long_prefill", "",
    ]  # fmt: skip
    assert verified(device, right) == Verification(0.0, 1e-3, True)
    wrong = write_tiny(folder / "wrong", several=True, prefilling=tiny.forgetful_steps)
    found = verified(device, wrong)
    assert not found.passed and found.function == "prefill"
    assert "(case 6); the function prefill is wrong" in found.message
    wrong = write_tiny(folder / "long", long_prefilling=tiny.forgetful_long_steps)
    found = verified(device, wrong)
    assert not found.passed and found.function == "long_prefill"
    assert "(case 6); the function long_prefill is wrong" in found.message
    one, four = np.zeros(1, np.int32), np.zeros(tiny.CHUNK, np.int32)
    plain = write_tiny(folder / "plain")
    with device.open_session("tvm", threads=1) as session:
        with pytest.raises(DeviceError, match="no model is loaded"):
            session.run([one, one], "verify")
        session.load(plain)
        for function, given, words in (
            ("together", [one, one], "the loaded model has no function together"),
            ("a\nb", [one, one], "has no function a b"),
            ("long_prefill", [four, one, one], "the loaded model has no function long_prefill"),
            ("prefill", [four, one], "2 inputs given, the model takes 3"),
            ("prefill", [one, one, one], r"input tokens is int32\[1\], the model takes int32\[4\]"),
            ("prefill", [four.astype(np.float32), one, one], "input tokens is float32"),
        ):
            with pytest.raises(DeviceError, match=words):
                session.run(given, function)
        assert session.call_s([four, one, one], "prefill") > 0.0
        [found] = session.run([np.array([2], np.int32), one])
        np.testing.assert_array_equal(found, tiny.logits([2]))
