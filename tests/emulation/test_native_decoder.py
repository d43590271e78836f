"""A language model in the native executor on emulated boards: the same greedy text as on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import sdk
from device_agent import runtime
from host import bundle
from host.compare.verification import verify
from tests.emulation.boards import board_of
from tests.emulation.test_native import PROGRAMS, START_S, chosen, emulator
from tests.integration.native.process import Executor
from tests.shared_cache import executor_for, root_of
from tests.signing import trust
from tests.unit.importers.decoders.models import save

PROMPT = [7, 101, 42, 42, 9]
COUNT = 16

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models") / "tiny"
    save(made, "qwen3", head_dim=32)
    return made


@pytest.fixture(scope="module")
def wanted(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[int]:
    """What this machine writes."""
    here = tmp_path_factory.mktemp("here")
    sdk.compile(folder, output=here / "bundle", threads=1, context_tokens=64, quantize="int4")
    trust(here / "trust.json")
    model = runtime.load(str(here / "bundle"), keys=str(here / "trust.json"))
    return [int(token) for token in model.generate(PROMPT, max_tokens=COUNT, speculate=False)]


# tests/integration/boards deploy a language model to a Cortex-A76, and to vectors of 128 bits.
@pytest.mark.parametrize("label", chosen("RISC-V without vectors", "RISC-V with vectors of 256 bits"))
def test_the_native_executor_writes_what_this_machine_does(
    label: str, folder: Path, wanted: list[int], tmp_path: Path
) -> None:
    name, processor = PROGRAMS[label]
    board = board_of(name)
    sdk.compile(
        folder, output=tmp_path / "bundle", target=name, threads=1, context_tokens=64, quantize="int4"
    )
    command = [emulator(board.architecture), "-cpu", processor, "-L", str(root_of(board.architecture))]
    command.append(str(executor_for(board.architecture)))
    with Executor(command, tmp_path / "session", START_S) as running:
        assert running.greedy(tmp_path / "bundle", PROMPT, COUNT) == wanted


class Session:
    """An executor that was started by hand, for the verification."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def run(self, inputs: Sequence[np.ndarray], function: str = "") -> list[np.ndarray]:
        """See `Runs`."""
        named = {"function": function} if function else {}
        reply, outputs = self._executor.ask("run", inputs, **named)
        assert reply["ok"], reply
        return outputs


@pytest.mark.long
def test_a_decoder_in_half_precision_is_verified_on_a_cortex_a76(folder: Path, tmp_path: Path) -> None:
    """By steps, prefill, verify and together; weights, keys and values are halves."""
    made, board = tmp_path / "bundle", board_of("raspberry_pi_5")
    options = {"target": "raspberry_pi_5", "threads": 1, "context_tokens": 64, "dtype": "fp16"}
    sdk.compile(folder, output=made, sequences=2, **options)
    manifest = bundle.load(made)
    assert {one.dtype for one in manifest.state} == {"float16"}
    assert {one.dtype for one in manifest.parameters if np.prod(one.shape) > 1024} == {"float16"}
    command = [emulator(board.architecture), "-cpu", "cortex-a76", "-L", str(root_of(board.architecture))]
    command.append(str(executor_for(board.architecture)))
    with Executor(command, tmp_path / "session", START_S) as running:
        assert running.ask("load", path=str(made))[0]["ok"]
        golden = bundle.golden_cases(made, manifest)
        assert {case.function for case in golden} == {"", "prefill", "verify", "together"}
        verdict, _ = verify(Session(running), manifest.typed_signature(), golden)
    assert verdict.passed, verdict.message
    assert 1e-5 < verdict.max_rel_err < 1e-2
