"""`sdk watch` on simulated boards whose truth changes: what is found, what it takes out, and the way back."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import host.commands.watch
from host.calibration.references import measure_references
from host.commands.watch import WatchOptions, watch
from host.leases import LeaseTable, Request
from host.records import RecordStore
from host.records.epochs import BoardEpochs, present_epoch
from host.transport import Device, connect
from sdk.cli.main import main
from tests.integration.boards.cli import sdk
from tests.integration.small_models import convnet

BOARD = """
schema = "edgetlm-replay/1"
seed = {seed}
[latency]
spread = {spread}
kernels = [
    {{ name = "fused_*", seconds = {fused} }},
    {{ name = "integer_chain", seconds = {chain} }},
    {{ name = "stream", seconds = {stream} }},
]
models = [{{ name = "tvm", seconds = {tvm} }}, {{ name = "onnxruntime", seconds = {onnx} }}]
[power]
idle_w = 2.0
active_w = 8.0
"""
# The compiled model is the faster one where the board is as it was, and the slower one where it is not.
TVM_S, ONNX_S = 0.002, 0.003


def truth(path: Path, seed: int, slower: float = 1.0, spread: float = 0.01, tvm_s: float = TVM_S) -> str:
    """Write what a board is like, over what it was; returns the device's name."""
    times = {"fused": 4e-4, "chain": 90e-6, "stream": 11e-3, "tvm": tvm_s, "onnx": ONNX_S}
    path.write_text(
        BOARD.format(seed=seed, spread=spread, **{name: one * slower for name, one in times.items()})
    )
    return f"replay:{path}"


@pytest.fixture
def records(tmp_path: Path) -> Path:
    return tmp_path / "records.sqlite"


def watched(
    capsys: pytest.CaptureFixture[str], device: str, records: object, code: int = 0, more: str = ""
) -> dict[str, Any]:
    """The row of one watch, which has to end with a code."""
    capsys.readouterr()
    line = f"watch {device} --once -o json --records {shlex.quote(str(records))} {more}"
    ended = main(shlex.split(line))
    said = capsys.readouterr()
    assert ended == code, f"{said.out}\n{said.err}"
    (row,) = json.loads(said.out)
    return row


def test_a_board_drifts_is_taken_out_and_comes_back(
    tmp_path: Path, records: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    board, model = tmp_path / "board.toml", convnet(tmp_path / "net.onnx")
    device = truth(board, 1)
    assert watched(capsys, device, records)["status"] == "begun"
    tune = f"tune {model} --device {device} --trials 2 --no-train --threads 1 --records {records}"
    sdk(capsys, tune)
    with connect(device) as connected:
        place = connected.place
    epoch = present_epoch(records, place)
    assert epoch is not None and epoch.drift is None
    with RecordStore(records) as store:
        before = list(store)
    assert {one.origin.epoch for one in before} == {epoch.key}
    measured = sum(one.median_s is not None for one in before)
    assert measured

    truth(board, 2, slower=1.03)
    row = watched(capsys, device, records)
    assert (
        row["status"] == "steady" and 1.02 < row["ratio"] < 1.04 and row["low"] < row["ratio"] < row["high"]
    )

    truth(board, 3, slower=1.08)
    row = watched(capsys, device, records, 3)
    assert row["status"] == "drifted" and 1.06 < row["low"] < 1.08 < row["high"] < 1.10
    assert row["records"] == len(before) and "longer than when its epoch began" in row["reason"]
    with RecordStore(records) as store:
        after = list(store)
    assert len(after) == len(before) and not any(one.median_s for one in after)

    # Whoever would measure there is refused in one line, and a deployment says it.
    assert main(shlex.split(tune)) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "has drifted" in error and f"sdk watch {device} --once" in error
    deploy = f"deploy {model} --device {device} --threads 1 --records {records} --bundle {tmp_path / 'b'}"
    said = sdk(capsys, f"{deploy} --report {tmp_path / 'r.html'}")
    assert "has drifted" in said and "its measurements from before are not used" in said

    # It stays out, until its new times are taken for what it is.
    assert watched(capsys, device, records, 3)["records"] is None
    assert watched(capsys, device, records, 0, "--accept")["status"] == "accepted"
    assert watched(capsys, device, records)["status"] == "steady"
    sdk(capsys, tune.replace("--trials 2", "--trials 2 --seed 1"))
    with RecordStore(records) as store:
        assert any(one.median_s for one in store)
        assert len({one.origin.epoch for one in store}) == 2


def test_a_noisy_board_raises_no_alarm(
    tmp_path: Path, records: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    board = tmp_path / "board.toml"
    device = truth(board, 100, spread=0.2)
    watched(capsys, device, records)
    for seed in range(101, 104):
        truth(board, seed, spread=0.2)
        assert watched(capsys, device, records)["status"] == "steady"


def test_a_watch_that_is_interrupted_leaves_nothing_half_done(
    tmp_path: Path, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = tmp_path / "board.toml"
    device = truth(board, 1)
    (begun,) = watch([device], WatchOptions(str(records)))
    assert begun.status == "begun"
    truth(board, 2, slower=1.2)
    calls = 0

    def interrupted(connected: Device, progress: object = None) -> object:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return measure_references(connected)

    with monkeypatch.context() as patch:
        patch.setattr(host.commands.watch, "measure_references", interrupted)
        with pytest.raises(KeyboardInterrupt):
            watch([device], WatchOptions(str(records)))
    assert calls == 2
    with connect(device) as connected:
        place = connected.place
    epoch = present_epoch(records, place)
    assert epoch is not None and epoch.drift is None

    # Nor does one that ends after the mark: the board is out, and the next watch goes on from there.
    def broken(connected: Device) -> object:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(host.commands.watch, "measure_deployed", broken)
        with pytest.raises(KeyboardInterrupt):
            watch([device], WatchOptions(str(records)))
    again = present_epoch(records, place)
    assert again is not None and again.key == epoch.key and again.drift is not None
    (seen,) = watch([device], WatchOptions(str(records)))
    assert seen.status == "drifted" and seen.reason == again.drift.reason


def with_two_versions(board: Path, records: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """A watched board with a model of ONNX Runtime and, in its place, the compiled one; the device's name."""
    model, device = convnet(board.with_name("net.onnx")), truth(board, 1)
    watched(capsys, device, records)
    for backend in ("onnxruntime", "tvm"):
        made, report = board.with_name(backend), board.with_name("r.html")
        sdk(
            capsys,
            f"deploy {model} --device {device} --threads 1 --records {records} --backend {backend}"
            f" --bundle {made} --report {report} --no-train",
        )
    return device


def test_models_are_measured_again_and_rolled_back_where_that_helps(
    tmp_path: Path, records: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    board = tmp_path / "board.toml"
    device = with_two_versions(board, records, capsys)
    # The compiled model suffers from what has changed, the other one less.
    truth(board, 2, slower=1.3, tvm_s=2 * TVM_S)
    row = watched(capsys, device, records, 3)
    assert (
        row["models"] == 1 and row["slower"] == row["earlier_faster"] == "net" and row["rolled_back"] is None
    )
    with connect(device) as connected:
        assert [one["backend"] for one in connected.bundles() if one["active"]] == ["tvm"]
    row = watched(capsys, device, records, 3, "--rollback")
    assert row["rolled_back"] == "net"
    with connect(device) as connected:
        assert [one["backend"] for one in connected.bundles() if one["active"]] == ["onnxruntime"]
    # There is nothing to go back to any more.
    row = watched(capsys, device, records, 3, "--rollback")
    assert row["rolled_back"] is None and row["earlier_faster"] is None


def test_a_board_that_all_its_versions_run_slower_on_is_not_rolled_back(
    tmp_path: Path, records: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    board = tmp_path / "board.toml"
    device = with_two_versions(board, records, capsys)
    truth(board, 2, slower=1.3)
    row = watched(capsys, device, records, 3, "--rollback")
    assert row["slower"] == "net" and row["earlier_faster"] is None and row["rolled_back"] is None


def test_a_shared_board_is_leased_while_it_is_watched(
    tmp_path: Path, shared: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = truth(tmp_path / "board.toml", 1)
    seen: list[str] = []

    def looking(connected: Device, progress: object = None) -> object:
        with LeaseTable(shared) as table:
            seen.extend(f"{one.job} {one.health}" for one in table.status())
        return measure_references(connected)

    monkeypatch.setattr(host.commands.watch, "measure_references", looking)
    watched(capsys, device, shared)
    assert seen == ["watch held"]
    with connect(device) as connected:
        place = connected.place
    with LeaseTable(shared) as table, BoardEpochs(shared) as epochs:
        epoch = epochs.present(place)
        assert epoch is not None
        epochs.end(epoch.key, "stream takes 8% longer", "anna@desk")
        assert [one.health for one in table.status()] == ["drifted"]
        other = Request(place, "theirs", "anna@elsewhere", "tune resnet", "1")
        assert table.take(other) is None
        row = watched(capsys, device, shared, 1)
        assert row["status"] == "failed" and "anna@elsewhere has had it for" in row["reason"]
