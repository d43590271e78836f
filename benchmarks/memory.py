"""Memory that a loaded model takes when it runs, ours beside ONNX Runtime's.

    python -m benchmarks.memory [--models NAME,...] [--json FILE]

Each engine loads a model in a process of its own, on one thread, and runs it: what the process's anonymous
memory (RssAnon) grows by from the end of loading to after the first run, and to after the third one, is what
activations, workspaces and outputs take, with what the allocator keeps. ONNX Runtime plans its memory by the
first run and takes the planned block at the second. `planned` is what the manifest of our bundle states.
"""

from __future__ import annotations

import argparse
import json
import math
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
from tests.models.export import export

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


def anonymous_bytes() -> int:
    """Resident memory of this process that is no file's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this kernel does not say how much memory of a process is anonymous")


def child(engine_name: str, path: str, inputs_file: str) -> None:
    """Load a model, run it a few times, and print the growth after each run."""
    from device_agent.execute import engines
    from device_agent.execute.engines.arrays import from_array
    from device_agent.store.opened_bundle import open_bundle

    engine = engines.create(engine_name)
    with np.load(inputs_file) as arrays:
        inputs = [from_array(arrays[f"input{index}"]) for index in range(len(arrays.files))]
    if engine_name == "tvm":
        engine.load_bundle(open_bundle(path, "unsigned"), 1)
    else:
        engine.load(path, 1)
    engine.bind(inputs)
    before = anonymous_bytes()
    grown = []
    for _ in range(_RUNS):
        engine.invoke()
        grown.append(anonymous_bytes() - before)
    print(json.dumps(grown))


def growth(engine: str, path: Path, inputs: Sequence[np.ndarray], folder: Path) -> list[int]:
    """Bytes that a process grows by from the end of loading to after each run."""
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
    grown: list[int] = json.loads(done.stdout.splitlines()[-1])
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
        "first_run_ratio": ours[0] / theirs[0],
        "ratio": ours[-1] / theirs[-1],
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
            print(
                f"{name:<16} ours {row['ours_bytes'][-1] / 2**20:7.2f} MB  "
                f"ONNX Runtime {row['onnxruntime_bytes'][-1] / 2**20:7.2f} MB  "
                f"ratio {row['ratio']:.2f} (first run {row['first_run_ratio']:.2f})",
                flush=True,
            )
    result["models"] = rows
    result["geomean_ratio"] = math.exp(sum(math.log(row["ratio"]) for row in rows) / len(rows))
    print(f"geometric mean   {result['geomean_ratio']:.2f}")
    write_result(given.json, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
