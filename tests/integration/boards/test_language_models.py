"""Language models on emulated boards: verified there, and the same texts as on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import sdk as api
from host.devices import Registry
from host.transport import connect
from tests.emulation.qemu import emulator
from tests.integration.boards.cli import sdk
from tests.shared_cache import root_of
from tests.unit.importers.decoders.models import save

pytestmark = pytest.mark.timeout(1200)
PROMPT = [7, 301, 42, 42, 9]
COUNT = 16
EXAMPLE = Path(__file__).parents[3] / "examples" / "cpp"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models") / "tiny"
    save(made, "qwen3", head_dim=32, vocab_size=384)
    return made


@pytest.fixture(scope="module")
def here(folder: Path) -> Path:
    """The same model compiled for this machine."""
    made = folder.parent / "here"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder.parent / "cache"))
        api.compile(folder, output=made, threads=1, context_tokens=64, quantize="int4")
    return made


def greedy(device: str, bundle: Path, prompt: Sequence[int], count: int) -> list[int]:
    """Tokens by single steps of a session: each run reads what the runs before have left in the state."""
    tokens = list(prompt)
    with connect(device) as connected, connected.open_session("tvm") as session:
        session.load(bundle)
        for place in range(len(prompt) + count - 1):
            inputs = (np.array([tokens[place]], np.int32), np.array([place], np.int32))
            [logits] = session.run(inputs)
            if place >= len(prompt) - 1:
                tokens.append(int(logits.argmax()))
    return tokens[len(prompt) :]


@pytest.mark.parametrize(
    "board",
    [
        pytest.param("raspberry_pi_4", marks=pytest.mark.long),
        "raspberry_pi_5",
        pytest.param("jetson_agx_thor", marks=pytest.mark.long),
        "rv64gcv",
    ],
)
def test_a_board_writes_what_this_machine_does(
    board: str, folder: Path, here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    architecture = "riscv64" if board.startswith("rv") else "aarch64"
    options = "--vector-bits 128" if architecture == "riscv64" else f"--board {board}"
    sdk(capsys, f"devices emulate {architecture} --name board {options}")
    said = sdk(
        capsys,
        f"deploy {folder} --device board --threads 1 --context 64 --quantize int4"
        f" --bundle {tmp_path / 'board'} --report {tmp_path / 'report.html'}",
    )
    assert "verified  largest relative error" in said
    with api.load_language_model(here) as model:
        wanted = list(model.generate(PROMPT, max_tokens=COUNT))
    assert len(wanted) == COUNT
    assert greedy("board", tmp_path / "board", PROMPT, COUNT) == wanted
    with api.load_language_model(tmp_path / "board", device="board") as model:
        assert list(model.generate(PROMPT, max_tokens=COUNT)) == wanted
    if board == "raspberry_pi_5":
        plain, drafted = generated_in_cpp(tmp_path / "board", tmp_path / "program")
        # The end of the prompt stood in it before, so that a draft is verified at once.
        assert drafted == plain
        with api.load_language_model(here) as model:
            assert plain == list(model.generate(PROMPT * 2, max_tokens=COUNT))


def generated_in_cpp(bundle: Path, folder: Path) -> list[list[int]]:
    """Tokens by the example program, built for the board as its README says and run below its root.

    Without speculation, and with it.
    """
    device = Path(Registry().get("board").options["folder"])
    site = Path(json.loads((device / "home" / "payloads.json").read_text())["tvm"]["path"])
    zig = f"{sys.executable} -m ziglang c++ -target aarch64-linux-gnu.2.28"
    command = ["make", "-s", "-C", str(EXAMPLE), f"PYTHON={sys.executable}", f"OUT={folder}", f"SITE={site}"]
    program = folder / "generate"
    subprocess.run([*command, f"CXX={zig}", str(program)], check=True, capture_output=True)
    emulated = [emulator("aarch64"), "-cpu", "cortex-a76", "-L", str(root_of("aarch64"))]
    emulated += ["-E", f"LD_LIBRARY_PATH={site / 'tvm_ffi/lib'}:{site / 'tvm/lib'}", str(program)]
    words = [str(bundle), "--trust", "unsigned", "--max-tokens", str(COUNT), *map(str, PROMPT * 2)]
    found = []
    for how in ("never", "always"):
        command = [*emulated, *words, "--speculate", how]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found.append([int(line) for line in done.stdout.split()])
    return found
