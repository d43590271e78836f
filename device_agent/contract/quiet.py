"""Libraries report nothing about their user: the one place where this is switched off, for host and device.

Each entry was seen at work under `strace` with a fresh home, or is in the library's documentation:

- ONNX Runtime 1.29 and newer, Linux: `import onnxruntime` alone writes a device identifier and a queue of
  events (with the paths of programs and models) below the user's cache, and a session file in the folder for
  temporary files; seconds later its collector is looked up. `ORT_DISABLE_TELEMETRY` is read once, when the
  library starts, and then nothing of this happens; `disable_telemetry_events()` only stops further events.
- OpenVINO: `import openvino` sends an event and writes an identifier below `~/intel` where the package
  `openvino_telemetry` can be imported. It has no variable; without the package OpenVINO takes its own stub.
- Hugging Face's libraries: `HF_HUB_DISABLE_TELEMETRY`, and `DO_NOT_TRACK`, which others follow too.
- pip asks for its own newest version: `PIP_DISABLE_PIP_VERSION_CHECK`.

TVM, PyTorch, LiteRT, tflite-runtime, ncnn and onnxslim look nothing up and write no identifier.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from typing import Any, Iterator, Mapping

# Inherited by every process that is started afterwards.
VARIABLES: Mapping[str, str] = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "ORT_DISABLE_TELEMETRY": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}
# Reporters that a library does without where they are missing.
_REPORTERS = ("openvino_telemetry",)


def silence() -> None:
    """Switches reporting off for what this process, and those that it starts, load from now on."""
    os.environ.update(VARIABLES)


def import_quietly(name: str) -> Any:
    """Imports a package so that nothing of it reports.

    A package that the application imported before has started whatever it starts; of that only ONNX Runtime's
    further events can be stopped.

    Args:
        name: of the module.

    Raises:
        ImportError: it is not installed, or does not load.
    """
    silence()
    with _without(*_REPORTERS):
        module = importlib.import_module(name)
    stop = getattr(module, "disable_telemetry_events", None)
    if stop is not None:
        stop()
    return module


@contextlib.contextmanager
def _without(*names: str) -> Iterator[None]:
    """Modules that cannot be imported meanwhile; those that are imported already stay as they are."""
    missing = [name for name in names if name not in sys.modules]
    for name in missing:
        # What Python takes as "there is no such module".
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in missing:
            sys.modules.pop(name, None)
