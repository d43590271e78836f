"""The native executor on emulated boards: models and kernels over RPC, with vectors and without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import rpc, runtime

import sdk
from device_agent.contract.manifest import ContractError, check_manifest
from host import bundle
from host.build import build_kernel_library, target_for
from host.gensor import Gensor
from host.manifest import Manifest
from host.model import DeviceProfile
from host.schedules import scheduled_function, space_for
from targets import Board
from tests.emulation.boards import board_of
from tests.emulation.operators import tasks_of
from tests.emulation.qemu import emulator
from tests.emulation.test_kernels import arguments, reference
from tests.integration import small_models
from tests.integration.native.known_answers import digest_inputs, signature_inputs
from tests.integration.native.mutations import mutated_manifests
from tests.integration.native.process import KEY, Executor, read_with
from tests.shared_cache import executor_for, root_of

PROGRAMS = {
    "RISC-V without vectors": ("rv64gc", "rv64,v=false"),
    "RISC-V with vectors of 128 bits": ("rv64gcv", "rv64,v=true,vlen=128"),
    "RISC-V with vectors of 256 bits": ("rv64gcv", "rv64,v=true,vlen=256"),
    "Cortex-A53": ("raspberry_pi_3", "cortex-a53"),
}
# The first has instructions of SHA-256; its reader asks the portable function too.
HASHING = {"aarch64": "cortex-a53", "riscv64": "rv64,v=false"}
START_S = 120.0


def chosen(*labels: str) -> list[Any]:
    """The labels of all programs, of which the others are tried by hand."""
    return [pytest.param(one, marks=[] if one in labels else [pytest.mark.long]) for one in PROGRAMS]


Start = Callable[[Board, str], Executor]
pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("own_files")]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts the executor of a board on one of the emulator's processors."""

    def started(board: Board, processor: str) -> Executor:
        command = [emulator(board.architecture), "-cpu", processor, "-L", str(root_of(board.architecture))]
        return Executor([*command, str(executor_for(board.architecture))], tmp_path / "session", START_S)

    return started


def check_golden(running: Executor, directory: Path, manifest: Manifest) -> None:
    """Load a bundle and compare what it gives with the original runtime's outputs."""
    reply, _ = running.ask("load", path=str(directory))
    assert reply["ok"], reply
    assert [entry["name"] for entry in reply["signature"]["inputs"]] == [
        i.name for i in manifest.signature.inputs
    ]
    for case in bundle.golden_cases(directory, manifest):
        reply, outputs = running.ask("run", case.inputs)
        assert reply["ok"], reply
        for ours, theirs in zip(outputs, case.outputs, strict=True):
            limit = 1e-3 * float(np.abs(theirs).max())
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=limit)


# tests/integration/boards deploy models to processors without vectors, and with vectors of 128 bits.
@pytest.mark.parametrize("label", chosen("RISC-V with vectors of 256 bits", "Cortex-A53"))
def test_a_model_gives_what_the_original_runtime_gives(label: str, start: Start, tmp_path: Path) -> None:
    name, processor = PROGRAMS[label]
    model = small_models.convnet(tmp_path / "net.onnx")
    manifest = sdk.compile(model, output=tmp_path / "bundle", target=name, threads=1, backend="tvm")
    with start(board_of(name), processor) as running:
        check_golden(running, tmp_path / "bundle", manifest)
        reply, _ = running.ask("profile", runs=1)
        assert any("conv" in kernel["name"] for kernel in reply["kernels"])
        reply, values = running.ask("intermediates")
        assert reply["complete"] and len(values) >= len(reply["calls"]) > 1


@pytest.mark.parametrize("label", chosen("RISC-V with vectors of 128 bits", "Cortex-A53"))
def test_a_kernel_is_called_over_rpc(label: str, start: Start, tmp_path: Path) -> None:
    name, processor = PROGRAMS[label]
    board = board_of(name)
    task = next(task for operator, task in tasks_of(board) if operator == "dense")
    space = space_for(task, board.hardware)
    (candidate,) = Gensor().propose(space, DeviceProfile(name, board, board.hardware, 1), (), 1, seed=0)
    functions = {"dense": scheduled_function(space.apply(candidate))}
    library = build_kernel_library(functions, tmp_path / "dense.so", target_for(board))
    values = arguments(task)
    with start(board, processor) as running:
        session = rpc.connect("127.0.0.1", running.port, key=KEY)
        session.upload(bytearray(library.read_bytes()), library.name)
        function = session.load_module(library.name).get_function("dense", query_imports=True)
        tensors = [runtime.tensor(value, session.cpu()) for value in values]
        function(*tensors)
        found = [tensor.numpy() for tensor in tensors]
        session.get_function("CloseRPCConnection")()
        with pytest.raises(Exception, match=r"(?i)key"):
            rpc.connect("127.0.0.1", running.port, key="guess")
    for mine, theirs in zip(found, reference([task], tmp_path)(task), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("architecture", HASHING)
def test_bundles_are_checked_alike_on_every_processor(architecture: str) -> None:
    command = [emulator(architecture), "-cpu", HASHING[architecture], "-L", str(root_of(architecture))]
    command.append(str(executor_for(architecture)))
    assert set(read_with(command, "sha256", digest_inputs())) == {"ok"}
    assert set(read_with(command, "ed25519", signature_inputs())) == {"ok"}
    flipped = [one[:40] + bytes([one[40] ^ 1]) + one[41:] for one in signature_inputs()]
    assert "ok" not in read_with(command, "ed25519", flipped)
    manifests = list(mutated_manifests(300, seed=3))
    for data, found in zip(manifests, read_with(command, "manifest", manifests), strict=True):
        assert (found == "ok") == _is_manifest(data), (data, found)


def _is_manifest(data: bytes) -> bool:
    try:
        check_manifest(data)
    except ContractError:
        return False
    return True
