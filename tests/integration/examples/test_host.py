"""The examples on the host, and `Device.run`, on bundles of this machine."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import sdk
from host.errors import BundleError, DeviceError, ModelFileError, ShapeError
from tests.integration.examples.running import draw, example, pair


def test_deploying_and_running_from_the_host(folder: Path, image_bundle: Path) -> None:
    done = example("deploy.py", folder / "net.onnx", "--threads", 1)
    assert done.returncode == 0, done.stderr
    assert "net runs on local in" in done.stdout
    [line] = [line for line in done.stdout.splitlines() if line.startswith("bundle ")]
    assert (Path(line.split()[1]) / "manifest.json").is_file()
    done = example("run_from_host.py", image_bundle, "--runs", 2)
    assert done.returncode == 0, done.stderr
    assert "call 2: " in done.stdout


@pytest.fixture
def device() -> Iterator[sdk.api.Device]:
    with sdk.connect() as connected:
        yield connected


def test_run_takes_a_dict_a_list_or_the_only_array(
    device: sdk.api.Device, pair_bundle: Path, image_bundle: Path
) -> None:
    inputs = pair()
    by_name = device.run(pair_bundle, inputs)
    assert list(by_name) == ["sum", "positive"]
    in_order = device.run(str(pair_bundle), [inputs["x"], inputs["b"]])
    for name, value in by_name.items():
        np.testing.assert_array_equal(value, in_order[name])
    np.testing.assert_array_equal(by_name["positive"], np.maximum(by_name["sum"], 0))
    [info] = json.loads((image_bundle / "manifest.json").read_text())["signature"]["inputs"]
    [(_, scores)] = device.run(image_bundle, draw(*info["shape"])).items()
    assert np.isfinite(scores).all()


def test_run_keeps_the_session_of_a_bundle_until_it_changes(
    device: sdk.api.Device, pair_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in pair_bundle.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    opened: list[str] = []
    transport = device._transport
    open_session = transport.open_session

    def counting(engine: str, *arguments: object, **others: object) -> object:
        opened.append(engine)
        return open_session(engine, *arguments, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(transport, "open_session", counting)
    for _ in range(3):
        device.run(copy, pair())
    assert opened == ["tvm"]
    os.utime(copy / "lib.so")
    device.run(copy, pair())
    assert opened == ["tvm"] * 2
    (copy / "lib.so").write_bytes(b"damaged")
    with pytest.raises(BundleError):
        device.run(copy, pair())


def test_run_says_what_does_not_fit(device: sdk.api.Device, pair_bundle: Path, tmp_path: Path) -> None:
    inputs = pair()
    with pytest.raises(ModelFileError, match="no such bundle"):
        device.run(tmp_path / "none", inputs)
    with pytest.raises(ShapeError, match="inputs given: 1, the model takes 2: x, b"):
        device.run(pair_bundle, inputs["x"])
    with pytest.raises(ShapeError, match="'b' is missing"):
        device.run(pair_bundle, {"x": inputs["x"]})
    with pytest.raises(ShapeError, match="no input 'y'"):
        device.run(pair_bundle, {**inputs, "y": inputs["x"]})
    with pytest.raises(ShapeError, match="'x' is a list: give a numpy array"):
        device.run(pair_bundle, {**inputs, "x": [1.0]})
    with pytest.raises(ShapeError, match="float64"):
        device.run(pair_bundle, {**inputs, "x": inputs["x"].astype(np.float64)})
    # Nothing of it cost the session.
    assert device.run(pair_bundle, inputs)["sum"].shape == (4, 8)


def test_run_goes_on_after_its_session_died(device: sdk.api.Device, pair_bundle: Path) -> None:
    expected = device.run(pair_bundle, pair())
    [model] = device._loaded.values()
    os.kill(model._session.pid, signal.SIGKILL)
    with pytest.raises(DeviceError):
        device.run(pair_bundle, pair())
    np.testing.assert_array_equal(device.run(pair_bundle, pair())["sum"], expected["sum"])
