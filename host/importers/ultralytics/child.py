"""The worker's side: Ultralytics reads a checkpoint and exports it to ONNX with fixed sizes.

Code of the pickle may run from the first byte on, so nothing here protects anything: the kernel does, and the
parent checks what comes back.
"""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from device_agent.contract.text import printable
from host.errors import EdgeError, EngineError, ModelFileError, ShapeError
from host.importers.pins import DeclaredInput, pin_with_defaults

# Set before the package is imported: nothing is installed, and nothing is asked for elsewhere.
os.environ.update(YOLO_AUTOINSTALL="false", YOLO_OFFLINE="true")

# As their exporter names the only input, and the size where neither the checkpoint nor --shape gives one.
_INPUT, _SIDE, _CHANNELS = "images", 640, 3


def load_package() -> None:
    """Import their package, before the file is touched.

    Raises:
        EngineError: it cannot be imported here.
    """
    try:
        importlib.import_module("ultralytics")
    # A package that is built for other libraries fails in many ways.
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise EngineError(
            f"ultralytics cannot be imported ({printable(error, 200)}): install it again with pip install "
            "ultralytics, into this environment and not as an editable package"
        ) from error


def export(path: str, target: str, shapes: Mapping[str, Sequence[int]]) -> list[int]:
    """Write the ONNX file.

    Args:
        path: of the checkpoint.
        target: the ONNX file, new.
        shapes: of the input, or sizes by the names batch, height and width.

    Returns:
        The shape of the input, [batch, channels, height, width].

    Raises:
        ModelFileError: their exporter refuses the checkpoint.
        ShapeError: a size does not fit.
    """
    name = Path(path).name
    # Written beside the checkpoint, under its name: a copy with a name that says nothing to their loader.
    copy = Path.cwd() / "checkpoint.pt"
    shutil.copyfile(path, copy)
    try:
        model = importlib.import_module("ultralytics").YOLO(str(copy))
        sizes = pin_with_defaults(name, [_declared(model)], _defaults(model), shapes)[_INPUT]
        made = model.export(
            format="onnx", imgsz=list(sizes[2:]), batch=sizes[0], device="cpu", dynamic=False, verbose=False
        )
        found = _shape_of(Path(made))
    except EdgeError:
        raise
    except Exception as error:  # whatever their package or the code of the pickle raises
        raise ModelFileError(
            f"{path}: Ultralytics does not export it ({type(error).__name__}: {printable(error, 200)}): "
            f"update their package, or type yolo export model={name} format=onnx to see more"
        ) from error
    if found != list(sizes):
        text = ",".join(map(str, found))
        raise ShapeError(
            f"{name}: Ultralytics rounds {_INPUT}={','.join(map(str, sizes))} to {text}: give --shape "
            f"{_INPUT}={text}"
        )
    Path(made).rename(target)
    return found


def _declared(model: Any) -> DeclaredInput:
    channels = (getattr(model.model, "yaml", None) or {}).get("channels", _CHANNELS)
    return DeclaredInput(_INPUT, ("batch", int(channels), "height", "width"), "float32")


def _defaults(model: Any) -> dict[str, int]:
    """The sizes that the model was trained with."""
    size = (getattr(model.model, "args", None) or {}).get("imgsz", _SIDE)
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return {"batch": 1, "height": int(height), "width": int(width)}


def _shape_of(made: Path) -> list[int]:
    """The shape of the input in the file itself."""
    import onnx

    (first, *_) = onnx.load(str(made), load_external_data=False).graph.input
    return [int(size.dim_value) for size in first.type.tensor_type.shape.dim]
