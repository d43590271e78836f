"""A board's records go to a second host, whose board of the same kind starts from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from host.keys import host_key
from host.places import records_file
from host.records import RecordStore
from host.records.choice import best_program
from sdk.cli.main import main
from tests.integration.boards.cli import sdk
from tests.integration.test_tuning import perceptron

# Slow, so that a window of measuring holds few runs of a small model: each is simulated.
BOARD = (
    'schema = "edgetlm-replay/1"\nseed = {seed}\n[latency]\nfactor = 100\n[power]\nidle_w = 2\nactive_w = 6\n'
)


def _host(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """From now on this is another host, with keys, records and a board of its own; the board's address."""
    folder.mkdir()
    monkeypatch.setenv("EDGETLM_KEYS", str(folder / "keys"))
    for name in ("DATA", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(folder / name))
    (folder / "board.toml").write_text(BOARD.format(seed=len(folder.name)))
    return f"replay:{folder / 'board.toml'}"


def _programs(folder: Path) -> dict[str, Any]:
    """The decisions of each kernel of a bundle, and whether they are from the records."""
    kernels = json.loads((folder / "manifest.json").read_text())["kernels"]
    return {one["task"]: (one["from_database"], one["source"]) for one in kernels}


def test_a_second_board_of_the_kind_starts_from_the_pack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, pack = perceptron(tmp_path / "net.onnx"), tmp_path / "board.pack"
    first = _host(tmp_path / "first", monkeypatch)
    key = host_key().public
    sdk(capsys, f"tune {model} --device {first} --threads 1 --trials 8 --no-train")
    with RecordStore(records_file()) as store:
        kept = list(store)
    said = sdk(capsys, f"records publish {first} {pack}")
    assert f"{len(kept)} records of {kept[0].profile['board']} and no calibration" in said

    second = _host(tmp_path / "second one", monkeypatch)
    assert host_key().public != key
    assert main(["records", "pull", str(pack)]) == 1
    assert f"sdk keys trust {key} --name NAME" in " ".join(capsys.readouterr().err.split())
    sdk(capsys, f"keys trust {key} --name first")
    deploy = f"deploy {model} --device '{second}' --threads 1 --backend tvm --bundle"
    sdk(capsys, f"{deploy} {tmp_path / 'before'}")
    assert not any(known for known, _ in _programs(tmp_path / "before").values())
    assert f"{len(kept)} of {len(kept)} records" in sdk(capsys, f"records pull {pack}")
    sdk(capsys, f"{deploy} {tmp_path / 'after'}")
    found = _programs(tmp_path / "after")
    tasks = {one.candidate.workload_hash for one in kept if not one.failure}
    assert tasks and tasks <= set(found)
    for task in tasks:
        taken = best_program(one for one in kept if one.candidate.workload_hash == task)
        assert taken is not None
        assert found[task] == (True, taken[0].candidate.proposer)
    assert f"0 of {len(kept)} records" in sdk(capsys, f"records pull {pack}")
