"""Nothing that we start looks a name up, connects elsewhere, or leaves an identifier in the user's home."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.integration import small_models
from tests.integration.agent.small_models import write_onnx, write_pt2, write_tflite
from tests.integration.network.network_watch import ROOT, Namespace, Seen, Traced, observer

# Where our own files go: everything else in a fresh home or folder for temporary files is a library's.
_OURS = (".cache/edgetlm/", ".config/edgetlm/", ".local/share/edgetlm/")

# A datagram socket that is connected sends nothing, so that this is harmless on a real network too. The
# addresses are for documentation (RFC 5737, RFC 3849).
_REACHES_OUT = """
import os, pathlib, socket, sys
pathlib.Path(os.environ["HOME"], ".identifier").write_text("1")
def reach(family, address, port):
    with socket.socket(family, socket.SOCK_DGRAM) as client:
        try:
            client.connect((address, port))
        except OSError:
            pass
reach(socket.AF_INET, "203.0.113.9", 443)
reach(socket.AF_INET6, "2001:db8::9", 443)
if sys.argv[1] == "namespace":
    try:
        socket.getaddrinfo("collector.invalid", 443)
    except OSError:
        pass
else:
    reach(socket.AF_INET, "203.0.113.53", 53)
"""

_REFERENCES = """
import sys
from pathlib import Path
import numpy as np
from host.engines import run_reference
inputs = [[np.ones((2, 3), "float32"), np.ones((2, 3), "float32")]]
for engine, name in (word.split("=") for word in sys.argv[1:]):
    outputs = run_reference(engine, Path(name), inputs)
    assert any(np.array_equal(one, np.full((2, 3), 3.0)) for one in outputs[0]), (engine, outputs)
"""

_SDK = "import sys; from tests.deployments.short_rounds import main; sys.exit(main(sys.argv[1:]))"

_APPLICATION = """
import sys
import numpy as np
from device_agent import runtime
model = runtime.load(sys.argv[1])
assert model.backend == "onnxruntime", model.backend
[scores] = model.run([np.ones((1, 3, 16, 16), "float32")]).values()
assert scores.shape == (1, 10)
"""


class Watched:
    """Commands with a fresh home, and what they leave there."""

    def __init__(self, folder: Path, how: Namespace | Traced) -> None:
        self.home = folder / "fresh"
        self._folder = folder
        self._how = how
        (self.home / "tmp").mkdir(parents=True)
        # Nothing of this process's environment is passed on: it is silenced itself.
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TMPDIR": str(self.home / "tmp"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
        }

    def __call__(self, *command: str) -> Seen:
        return self._how.watch(command, self._environment, self._folder)

    def left(self) -> list[str]:
        """Files of others than ourselves, by their path in the home."""
        files = (path.relative_to(self.home).as_posix() for path in self.home.rglob("*") if path.is_file())
        return sorted(name for name in files if not name.startswith(_OURS))


def _watched(folder: Path, how: Namespace | Traced | None, reason: str) -> Watched:
    if how is None:
        pytest.skip(reason)
    return Watched(folder, how)


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    """Under the best observer that the kernel permits."""
    return _watched(tmp_path, *observer())


def silent(seen: Seen) -> None:
    """A command that did its work and reached for nobody."""
    assert seen.returncode == 0, seen.output
    assert (seen.lookups, seen.outside) == ((), ()), seen.output


@pytest.mark.parametrize("kind", [Namespace, Traced], ids=lambda kind: kind.name)
def test_the_observers_see_what_reaches_out(tmp_path: Path, kind: type[Namespace] | type[Traced]) -> None:
    watched = _watched(tmp_path, None if kind.refused() else kind(), str(kind.refused()))
    seen = watched(sys.executable, "-c", _REACHES_OUT, kind.name)
    assert seen.returncode == 0, seen.output
    assert set(seen.lookups) == {"collector.invalid" if kind is Namespace else "203.0.113.53:53"}
    assert len(seen.outside) >= 2
    assert watched.left() == [".identifier"]


def test_libraries_alone_leave_identifiers(tmp_path: Path) -> None:
    """What is switched off is there: the tests below would pass with libraries that never report."""
    watched = _watched(tmp_path, None if Namespace.refused() else Namespace(), str(Namespace.refused()))
    seen = watched(sys.executable, "-c", "import onnxruntime, openvino")
    assert seen.returncode == 0, seen.output
    left = watched.left()
    assert any(name.endswith("/deviceid") for name in left), left
    assert any(name.startswith("intel/") for name in left), left


def test_engines_are_silent(watched: Watched) -> None:
    onnx = write_onnx(watched.home / "small.onnx")
    models = {
        "onnxruntime": onnx,
        "openvino": onnx,
        "torch": write_pt2(watched.home / "small.pt2"),
        "litert": write_tflite(watched.home / "small.tflite"),
    }
    words = [f"{engine}={path}" for engine, path in models.items()]
    silent(watched(sys.executable, "-c", _REFERENCES, *words))
    assert set(watched.left()) == {path.name for path in models.values()}


def test_a_deployment_and_an_application_are_silent(watched: Watched) -> None:
    model = small_models.convnet(watched.home / "net.onnx")
    peers = ["--peer", "onnxruntime", "--peer", "openvino"]
    silent(watched(sys.executable, "-c", _SDK, "deploy", str(model), "--threads", "1", *peers))
    bundle = watched.home / "bundle"
    made = ["compile", str(model), "--output", str(bundle), "--backend", "onnxruntime"]
    silent(watched(sys.executable, "-c", _SDK, *made))
    silent(watched(sys.executable, "-c", _APPLICATION, str(bundle)))
    others = [name for name in watched.left() if not name.startswith("bundle/")]
    assert others == ["net.onnx"]
