"""What the target's processor has to do with how a language model is imported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from host.compile.device_profile import target_profile
from host.compile.model_file import read_model
from host.model import DeviceProfile
from host.options import CompileOptions
from host.progress import Silence, StageClock
from targets import Bfloat16Products
from tests.unit.importers.decoders.models import llama, llama_weights, write


class Asked(Exception):
    """Ends the import with what it was asked for."""


def profile(bfloat16: Bfloat16Products | None) -> DeviceProfile:
    """Of this machine, with such products or none."""
    found = target_profile("local", 1)
    return replace(found, hardware=replace(found.hardware, bfloat16=bfloat16, fma_per_cycle=1.0))


@pytest.mark.parametrize(("per_cycle", "asked"), [(1.0, True), (0.5, False), (None, False)])
def test_attention_is_rounded_for_processors_that_gain_by_it(
    per_cycle: float | None, asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    products = None if per_cycle is None else Bfloat16Products("avx512bf16", per_cycle, 4.0)
    folder = write(tmp_path / "model", llama(), llama_weights())

    def import_decoder(*given: Any) -> None:
        raise Asked(given[-1])

    monkeypatch.setattr("host.importers.decoders.importer.import_decoder", import_decoder)
    options, clock = CompileOptions(model=folder, quantize="int4"), StageClock(Silence())
    with pytest.raises(Asked, match=str(asked)):
        read_model(options, clock, profile=profile(products))
    with pytest.raises(Asked, match="False"):
        read_model(options, clock)
