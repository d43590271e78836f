"""The camera loop, as it runs on a board."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.examples.running import EXAMPLES, environment, example


@pytest.mark.usefixtures("trusted_here")
def test_the_camera_loop_classifies_frames_and_reports_percentiles(image_bundle: Path) -> None:
    done = example("camera.py", image_bundle, "--frames", 8)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-4].startswith("8 frames in ")
    assert [line.split()[0] for line in lines[-3:]] == ["preprocess", "inference", "frame"]
    assert all("p99" in line for line in lines[-3:])


@pytest.mark.usefixtures("trusted_here")
def test_the_camera_loop_ends_in_order_when_told_to(image_bundle: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "camera.py"), str(image_bundle)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as loop:
        assert loop.stdout is not None
        assert loop.stdout.readline().startswith("class ")
        loop.send_signal(signal.SIGTERM)
        rest = loop.stdout.read()
    assert loop.returncode == 0
    assert "frames in" in rest
    assert "inference" in rest


@pytest.mark.usefixtures("trusted_here")
def test_the_camera_loop_takes_an_installed_model_by_its_name(image_bundle: Path, tmp_path: Path) -> None:
    from host.transport.local import connect_local

    home = tmp_path / "agent-home"
    with connect_local(home / "device") as device:
        device.activate("net", device.install(image_bundle, "net"))
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "camera.py"), "net", "--frames", "2"],
        capture_output=True,
        text=True,
        check=False,
        env={**environment(), "EDGETLM_HOME": str(home)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-4].startswith("2 frames in ")


def test_every_engine_of_the_agent_is_importable(tmp_path: Path) -> None:
    """A board may have been sent ONNX Runtime alone."""
    (tmp_path / "payloads.json").write_text('{"onnxruntime": {"kind": "python", "path": "payloads/abc"}}')
    code = "import sys, camera; camera.find_agent(); print(*sys.path[-2:])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**environment(), "EDGETLM_HOME": str(tmp_path), "PYTHONPATH": str(EXAMPLES)},
    )
    assert done.stdout.split() == [str(tmp_path / "agent" / "current"), str(tmp_path / "payloads" / "abc")]
