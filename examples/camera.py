"""Classifies camera frames on the device itself, with nothing but Python, NumPy and the device agent.

    python3 camera.py mobilenetv2                  # a model that `sdk deploy` installed here, by its name
    python3 camera.py /path/to/bundle --camera 0   # a camera through OpenCV; synthetic frames without it

The camera has a thread of its own and keeps its newest frame only: a slow model drops frames and does not
fall behind. Ctrl-C or SIGTERM ends the loop after the frame under way. Runs on Python 3.8 and newer.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HOME = Path(os.environ.get("EDGETLM_HOME", "~/.local/share/edgetlm")).expanduser()


def find_agent() -> None:
    """Make the installed agent importable, and what it runs models with: each engine has a folder."""
    installed = HOME / "payloads.json"
    if installed.is_file():
        engines = json.loads(installed.read_text()).values()
        sys.path += [str(HOME / "agent" / "current"), *(str(HOME / one["path"]) for one in engines)]


def bundle_folder(name: str) -> str:
    """A bundle's own folder, or that of the active version of an installed model."""
    if Path(name).is_dir():
        return name
    from device_agent.store.bundles import BundleStore

    return BundleStore(str(HOME / "device")).active_path(name)


def synthetic_frames(height: int = 480, width: int = 640) -> Iterator[np.ndarray]:
    """A bright square that moves over a gradient, 30 times a second."""
    ramp = np.linspace(0, 128, width, dtype=np.uint8)
    background = ramp[None, :, None].repeat(height, 0).repeat(3, 2)
    for number in range(sys.maxsize):
        frame = background.copy()
        left = (number * 8) % (width - 64)
        frame[200:264, left : left + 64] = 255
        yield frame
        time.sleep(1 / 30)


def camera_frames(index: int) -> Iterator[np.ndarray]:
    """RGB frames of a camera."""
    import cv2

    camera = cv2.VideoCapture(index)
    while True:
        good, frame = camera.read()
        if not good:
            print(f"camera {index} gives no frame; --camera takes the number of /dev/videoN", file=sys.stderr)
            return
        yield frame[:, :, ::-1]


class Newest(threading.Thread):
    """Reads frames all the time and hands out the newest one, each once."""

    def __init__(self, frames: Iterator[np.ndarray]) -> None:
        super().__init__(daemon=True)
        self.frames = frames
        self.seen = 0
        self._slot: tuple[np.ndarray, float] | None = None
        self._changed = threading.Condition()

    def run(self) -> None:
        """Keep the newest frame with its time."""
        for frame in self.frames:
            with self._changed:
                self._slot = frame, time.monotonic()
                self.seen += 1
                self._changed.notify()

    def take(self) -> tuple[np.ndarray, float]:
        """Wait for a frame that was not handed out yet."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._slot is not None, timeout=5):
                sys.exit("error: no frame for 5 s; look at the camera")
            taken, self._slot = self._slot, None
            assert taken is not None
            return taken


def preprocess(frame: np.ndarray, info: Any) -> np.ndarray:
    """The frame in the model's size, layout and type: NCHW or NHWC, normalised where it takes floats."""
    nchw = info.shape[1] == 3
    height, width = info.shape[2:] if nchw else info.shape[1:3]
    rows = np.arange(height) * frame.shape[0] // height
    columns = np.arange(width) * frame.shape[1] // width
    small = frame[rows][:, columns]
    if info.dtype.startswith("float"):
        small = (small / 255.0 - MEAN) / DEVIATION
    return np.ascontiguousarray((small.transpose(2, 0, 1) if nchw else small)[None], dtype=info.dtype)


def watch(model: Any, newest: Newest, stopping: threading.Event, limit: int) -> dict[str, list[float]]:
    """Classify frames until `stopping` is set; returns the seconds of each step of each frame."""
    info = model.signature.inputs[0]
    times: dict[str, list[float]] = {"preprocess": [], "inference": [], "frame age": []}
    printed = time.monotonic()
    while not stopping.is_set() and not (limit and len(times["inference"]) >= limit):
        frame, taken_at = newest.take()
        start = time.monotonic()
        tensor = preprocess(frame, info)
        ready = time.monotonic()
        scores = next(iter(model.run({info.name: tensor}).values()))
        done = time.monotonic()
        times["preprocess"].append(ready - start)
        times["inference"].append(done - ready)
        times["frame age"].append(done - taken_at)
        if done - printed >= 1.0:
            printed, best = done, int(np.argmax(scores))
            print(
                f"class {best} ({scores.flat[best]:.3f}), inference {(done - ready) * 1e3:.2f} ms", flush=True
            )
    return times


def main() -> None:
    """Load, loop, report."""
    options = argparse.ArgumentParser(description="Classify camera frames on this device.")
    options.add_argument("bundle", help="folder of a bundle, or name of an installed model")
    options.add_argument("--camera", type=int, help="number of a camera; synthetic frames without it")
    options.add_argument("--frames", type=int, default=0, help="end after so many; 0 goes on until Ctrl-C")
    options.add_argument("--threads", type=int, help="threads of the model; those it was measured with")
    asked = options.parse_args()
    find_agent()
    from device_agent.runtime import load

    model = load(bundle_folder(asked.bundle), asked.threads)
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    newest = Newest(synthetic_frames() if asked.camera is None else camera_frames(asked.camera))
    newest.start()
    begin = time.monotonic()
    times = watch(model, newest, stopping, asked.frames)
    seconds, count = time.monotonic() - begin, len(times["inference"])
    print(f"{count} frames in {seconds:.1f} s, {count / seconds:.1f} a second, {newest.seen - count} dropped")
    for name, values in times.items():
        p50, p90, p99 = np.percentile(values or [0.0], (50, 90, 99)) * 1e3
        print(f"{name:<11} p50 {p50:8.2f} ms   p90 {p90:8.2f} ms   p99 {p99:8.2f} ms")


if __name__ == "__main__":
    main()
