"""Whole models on the GPU, run by the native executor alone."""

from __future__ import annotations

import json
import shutil
import statistics
import tarfile
from pathlib import Path

import numpy as np

from benchmarks.gpu.driver import Driver
from benchmarks.gpu.figures import Item
from benchmarks.gpu.kit import EXECUTOR, MODEL_SUFFIX, Kit
from tests.integration.native.process import Executor

# Largest difference of an output, as a share of its largest number; see docs/cuda.md, "fp16".
TOLERANCE = 1e-2
_PLAN = {"energy": False, "min_repeats": 50, "max_repeats": 2000, "min_time_s": 1.0, "max_time_s": 5.0}
_PROFILE_RUNS = 20
_START_S = 30.0


class ModelError(Exception):
    """The executor refuses something, or its outputs are wrong."""


def run_model(driver: Driver, kit: Kit, name: str, folder: Path) -> Item:
    """Loads, verifies, times and profiles one bundle.

    Returns:
        `load_s`, `first_run_s`, `difference`, `latency_s`, `samples`, `kernels` (seconds of one inference, by
        name), `launch` (how they are started), `memory_bytes` (of the GPU, with the driver's context),
        `weights_bytes` and `activations_bytes` (which the bundle states).

    Raises:
        ModelError: the executor refuses something, or an output is wrong.
    """
    bundle = unpacked(kit, name, folder)
    manifest = json.loads((bundle / "manifest.json").read_text())
    before = driver.free_bytes()
    executable = folder / EXECUTOR
    shutil.copyfile(kit.folder / EXECUTOR, executable)
    executable.chmod(0o755)  # what a kit was carried by may have left that out
    specification = {"trust_file": str(folder / "trust.json")}
    with Executor([str(executable)], folder / "session", _START_S, **specification) as running:
        loaded = _asked(running, "load", path=str(bundle), trust="unsigned")[0]
        given, wanted = golden(bundle)
        reply, outputs = _asked(running, "run", given)
        difference = difference_of(outputs, wanted)
        measured = _asked(running, "measure", plan=_PLAN)[0]
        taken = before - driver.free_bytes()
        kernels = _asked(running, "profile", runs=_PROFILE_RUNS)[0]["kernels"]
    if not difference <= TOLERANCE:
        raise ModelError(f"an output is off by {difference:.3g} of its largest number")
    return {
        "load_s": loaded["load_s"],
        "first_run_s": reply["first_run_s"],
        "difference": difference,
        "latency_s": statistics.median(measured["times_s"]),
        "samples": measured["times_s"],
        "kernels": kernels,
        "launch": measured["conditions"]["launch"],
        "memory_bytes": taken,
        "weights_bytes": (bundle / "params.bin").stat().st_size,
        "activations_bytes": manifest["memory"]["activations_bytes"],
    }


def unpacked(kit: Kit, name: str, folder: Path) -> Path:
    """A bundle of a kit as files, below `folder`."""
    bundle = folder / name
    with tarfile.open(kit.folder / f"{name}{MODEL_SUFFIX}") as archive:
        archive.extractall(bundle, filter="data")
    return bundle


def golden(bundle: Path) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Inputs and outputs of the first golden case."""
    with np.load(bundle / "golden.npz") as golden:

        def arrays(kind: str) -> list[np.ndarray]:
            count = sum(key.startswith(f"case0_{kind}") for key in golden.files)
            return [golden[f"case0_{kind}{number}"] for number in range(count)]

        return arrays("input"), arrays("output")


def _asked(
    running: Executor, command: str, arrays: list[np.ndarray] | None = None, **fields: object
) -> tuple[Item, list[np.ndarray]]:
    reply, tensors = running.ask(command, arrays, **fields)
    if not reply["ok"]:
        raise ModelError(f"{command}: {reply['error']['message']}")
    return reply, tensors


def difference_of(found: list[np.ndarray], wanted: list[np.ndarray]) -> float:
    """The largest difference of an output, as a share of its largest number."""
    shares = [0.0]
    for one, other in zip(found, wanted, strict=True):
        largest = float(np.abs(other.astype("float64")).max()) or 1.0
        shares.append(float(np.abs(one.astype("float64") - other).max()) / largest)
    # A NaN is no share that max() would keep.
    return float(np.max(shares))
