"""Memory that a loaded model takes when it runs, ours beside ONNX Runtime's.

    python -m benchmarks.memory [--models NAME,...] [--json FILE]

Each engine loads a model in a process of its own, on one thread, and runs it three times. What the process's
resident memory has grown by since before the loading is what weights, activations, workspaces and outputs
take, with what the allocator keeps (`steady`); what it grew by at most, loading included, is `peak`. Our
weights are counted with the pages of their file. Activations cannot be counted alone in this way: ONNX
Runtime takes them from memory that it has left from loading. `planned` is what the manifest states.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.result_file import ROOT, add_json_option, heading, write_result
from host import bundle
from host.statistics import geometric_mean
from research.models.export import export

SCHEMA = "edgetlm.memory/1"
MODELS = (
    "mobilenetv2",
    "resnet50",
    "efficientnet-b0",
    "convnext-tiny",
    "bert-base",
    "gpt2",
    "vit-tiny",
    "swin-tiny",
    "aspp",
)
_RUNS = 3
_TIME_LIMIT_S = 300


def resident_bytes() -> tuple[int, int]:
    """Resident memory of this process, now and at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    found = {name: value for name, _, value in (line.partition(":") for line in lines)}
    now, most = (int(found[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
    return now, most


def child(engine_name: str, path: str, inputs_file: str) -> None:
    """Load a model, run it a few times, and print what the process has grown by."""
    from device_agent.execute import engines
    from device_agent.execute.engines.arrays import from_array
    from device_agent.store.opened_bundle import open_bundle

    engine = engines.create(engine_name)
    with np.load(inputs_file) as arrays:
        inputs = [from_array(arrays[f"input{index}"]) for index in range(len(arrays.files))]
    before, _ = resident_bytes()
    if engine_name == "tvm":
        engine.load_bundle(open_bundle(path, "unsigned"), 1)
    else:
        engine.load(path, 1)
    engine.bind(inputs)
    for _ in range(_RUNS):
        engine.invoke()
    now, most = resident_bytes()
    print(json.dumps({"steady": now - before, "peak": most - before}))


def growth(engine: str, path: Path, inputs: Sequence[np.ndarray], folder: Path) -> dict[str, int]:
    """Bytes that a process grows by: `steady` after the runs, and `peak`."""
    file = folder / "inputs.npz"
    np.savez(file, allow_pickle=False, **{f"input{index}": array for index, array in enumerate(inputs)})
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", "--child", engine, str(path), str(file)],
        cwd=ROOT,
        env=os.environ | {"TVM_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        text=True,
        timeout=_TIME_LIMIT_S,
    )
    grown: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return grown


def measured(name: str, folder: Path) -> dict[str, Any]:
    """The figures of one model."""
    import sdk

    path = export(name, folder / "models", "onnx")
    directory = folder / "bundles" / name
    manifest = sdk.compile(path, output=directory, target="local", backend="tvm", threads=1)
    assert manifest.memory is not None
    inputs = bundle.golden_cases(directory, manifest)[0].inputs
    ours = growth("tvm", directory, inputs, folder)
    theirs = growth("onnxruntime", path, inputs, folder)
    return {
        "model": name,
        "planned": manifest.memory.model_dump(),
        "ours_bytes": ours,
        "onnxruntime_bytes": theirs,
        "steady_ratio": ours["steady"] / theirs["steady"],
        "peak_ratio": ours["peak"] / theirs["peak"],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="Memory of running models beside ONNX Runtime's.")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    add_json_option(parser)
    given = parser.parse_args(arguments)
    if given.child:
        child(*given.child)
        return 0
    result = heading("benchmarks.memory", SCHEMA, arguments)
    rows = []
    with tempfile.TemporaryDirectory(prefix="edgetlm-memory-") as folder:
        for name in given.models.split(","):
            row = measured(name, Path(folder))
            rows.append(row)
            ours, theirs = (row[side]["steady"] / 2**20 for side in ("ours_bytes", "onnxruntime_bytes"))
            ratios = f"{row['steady_ratio']:.2f} (peak {row['peak_ratio']:.2f})"
            print(
                f"{name:<16} ours {ours:7.1f} MB  ONNX Runtime {theirs:7.1f} MB  ratio {ratios}", flush=True
            )
    result["models"] = rows
    for kind in ("steady_ratio", "peak_ratio"):
        result[kind] = geometric_mean([row[kind] for row in rows])
    print(f"geometric mean   {result['steady_ratio']:.2f} (peak {result['peak_ratio']:.2f})")
    write_result(given.json, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
