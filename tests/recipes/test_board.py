"""A TOML file is all that a board needs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from host.build import build_kernel_library, target_for
from host.gensor import Gensor
from host.importers import load_here
from host.lowering import lower
from host.model import DeviceProfile, ImportedModel
from host.schedules import scheduled_function, space_for
from sdk.cli.main import main
from targets import MachineDescription, board_for, declared
from tests.integration.small_models import floats, save
from tests.recipes import files

BOARD = "targets/boards/workbench.toml"
WEIGHTS = np.linspace(-1.0, 1.0, 32 * 16, dtype=np.float32).reshape(32, 16)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "dense.onnx"
    nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["h"]), onnx.helper.make_node("Relu", ["h"], ["y"])]
    return save(path, nodes, [floats("x", 4, 32)], [floats("y", 4, 16)], {"w": WEIGHTS})


@pytest.fixture(scope="module")
def imported(model: Path) -> ImportedModel:
    return load_here(model)


@pytest.fixture
def workbench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The recipe's board, among the user's own: the same form, and the same reader."""
    folder = tmp_path / "edgetlm" / "boards"
    folder.mkdir(parents=True)
    (folder / Path(BOARD).name).write_text(files()[BOARD])
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return Path(BOARD).stem


def test_the_machine_is_recognised_by_its_device_tree(workbench: str) -> None:
    seen = MachineDescription("aarch64", "0x41:0xd08", 4, (), {}, 0.0, 4 << 30, "Acme Workbench Rev 1")
    board = board_for(seen)
    assert board is not None and board.name == workbench


def test_a_model_is_compiled_for_it_by_name(
    workbench: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["targets"]) == 0
    assert "Workbench: cortex-a72" in capsys.readouterr().out
    output = tmp_path / "bundle"
    assert main(["compile", str(model), "--target", workbench, "--backend", "tvm", "-o", str(output)]) == 0
    assert (output / "lib.so").read_bytes()[18:20] == b"\xb7\x00"  # EM_AARCH64


@pytest.mark.parametrize("name", sorted(declared()))
def test_a_model_compiles_for_every_target(name: str, imported: ImportedModel, tmp_path: Path) -> None:
    board = board_for(declared()[name])
    assert board is not None
    profile = DeviceProfile(name, board, board.hardware, 1)
    functions = {}
    for task in lower(imported, board).tasks:
        space = space_for(task, profile.hardware)
        (candidate,) = Gensor().propose(space, profile, (), 1, seed=0)
        functions[task.workload_hash] = scheduled_function(space.apply(candidate))
    library = tmp_path / "lib.so"
    build_kernel_library(functions, library, target_for(board))
    machine = {"x86_64": 62, "aarch64": 183, "riscv64": 243}[board.architecture]
    assert int.from_bytes(library.read_bytes()[18:20], "little") == machine
