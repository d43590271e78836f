"""An environment with a package named ultralytics: it reads checkpoints and exports them as theirs does.

The real package is under the AGPL and no dependency. The fake one unpickles what it is given, rounds sizes to
multiples of 32 and writes a small network; attributes that the pickle's code sets on it are exported too.
"""

from __future__ import annotations

import pickle
import site
import venv
import zipfile
from pathlib import Path
from typing import Any

_PACKAGE = """
import json, pickle, sys, zipfile
from types import SimpleNamespace

attempts = {}

class YOLO:
    def __init__(self, path):
        with zipfile.ZipFile(path) as archive:
            self.trained = pickle.loads(archive.read("net/data.pkl"))
        self.model = SimpleNamespace(args={"imgsz": self.trained["imgsz"]}, yaml={"channels": 3})
        self.path = path

    def export(self, format, imgsz, batch, device, dynamic, verbose):
        assert (format, device, dynamic) == ("onnx", "cpu", False)
        if self.trained.get("refused"):
            raise AssertionError("no such task\\nand a second line")
        import numpy, onnx
        from onnx import TensorProto, helper, numpy_helper
        rounded = [-(-side // 32) * 32 for side in imgsz]
        shrunk = [side // 8 for side in rounded]
        print("what an exporter prints is no answer")
        weight = numpy.full((4, 3, 3, 3), 0.01, "float32")
        node = helper.make_node("Conv", ["images", "w"], ["output0"], pads=[1, 1, 1, 1], strides=[8, 8])
        graph = helper.make_graph(
            [node],
            "net",
            [helper.make_tensor_value_info("images", TensorProto.FLOAT, [batch, 3, *rounded])],
            [helper.make_tensor_value_info("output0", TensorProto.FLOAT, [batch, 4, *shrunk])],
            [numpy_helper.from_array(weight, "w")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
        helper.set_model_props(model, {"attempts": json.dumps(attempts)})
        made = self.path.removesuffix(".pt") + ".onnx"
        onnx.save(model, made)
        return made
"""


class Code:
    """Runs when it is unpickled.

    Args:
        text: a program.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def __reduce__(self) -> Any:
        return exec, (self._text, {})


def environment(place: Path, package: str = _PACKAGE) -> Path:
    """Make an environment with the package and all that this interpreter has; returns its interpreter."""
    venv.create(place, symlinks=True)
    packages = packages_of(place)
    (packages / "ultralytics").mkdir()
    (packages / "ultralytics" / "__init__.py").write_text(package)
    (packages / "ultralytics-8.0.0.dist-info").mkdir()
    metadata = "Metadata-Version: 2.1\nName: ultralytics\nVersion: 8.0.0\n"
    (packages / "ultralytics-8.0.0.dist-info" / "METADATA").write_text(metadata)
    (packages / "base.pth").write_text("\n".join(site.getsitepackages()))
    return place / "bin" / "python"


def packages_of(place: Path) -> Path:
    """The folder of an environment's packages."""
    (found,) = place.glob("lib/python*/site-packages")
    return found


def checkpoint(path: Path, code: str = "", **fields: object) -> Path:
    """A checkpoint in the layout of torch.save, whose pickle names a class of Ultralytics."""
    trained = {"model": "ultralytics.nn.tasks.DetectionModel", "imgsz": 64, "code": Code(code), **fields}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net/data.pkl", pickle.dumps(trained))
        archive.writestr("net/version", "3")
    return path
