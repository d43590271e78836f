"""The native executor: size, memory, and what it costs to build. Prints one JSON object.

    python -m benchmarks.native [--architectures riscv64,aarch64,x86_64] [--model FILE.onnx] [--cold]

Memory is that of the executor for this machine, with the model compiled for it; the weights, which are mapped
from the bundle's file and can be dropped by the system, are counted apart. `--cold` builds in an empty folder
too, zig's C++ library included, and says the CPU seconds of it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import sdk
from benchmarks.result_file import add_json_option, heading, write_result
from host import bundle
from host.payload.native import native_executor
from research.models.export import export
from tests.integration.native.process import Executor

SCHEMA = "edgetlm.native/1"


def build(architecture: str, cold: bool) -> dict[str, Any]:
    """Sizes and seconds of one architecture's executable."""
    result: dict[str, Any] = {}
    if cold:
        with tempfile.TemporaryDirectory() as folder:
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            before, started = used.ru_utime + used.ru_stime, time.monotonic()
            native_executor(architecture, cache=Path(folder))
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            result["cold_s"] = round(time.monotonic() - started, 1)
            result["cold_cpu_s"] = round(used.ru_utime + used.ru_stime - before, 1)
    executable = native_executor(architecture)
    started = time.monotonic()
    native_executor(architecture)
    result["warm_s"] = round(time.monotonic() - started, 3)
    content = executable.read_bytes()
    result["bytes"] = len(content)
    result["compressed_bytes"] = len(gzip.compress(content, 6))
    return result


def memory(model: Path, folder: Path) -> dict[str, Any]:
    """Resident bytes of the executor for this machine, idle and after an inference of a model."""
    manifest = sdk.compile(model, output=folder / "bundle", threads=1, backend="tvm")
    (case, *_) = bundle.golden_cases(folder / "bundle", manifest)
    with Executor([str(native_executor(platform.machine()))], folder / "session") as running:
        result = {"idle": resident_bytes(running.pid)}
        running.ask("load", path=str(folder / "bundle"))
        result["loaded"] = resident_bytes(running.pid, without="params.bin")
        reply, _ = running.ask("run", case.inputs)
        assert reply["ok"], reply
        result["after_inference"] = resident_bytes(running.pid, without="params.bin")
        result["weights"] = resident_bytes(running.pid) - result["after_inference"]
    return result


def resident_bytes(pid: int, without: str = "") -> int:
    """Resident memory of a process, without mappings of one file."""
    total, counts = 0, True
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            counts = not without or not line.endswith(without)
        elif words[0] == "Rss:" and counts:
            total += int(words[1]) * 1024
    return total


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.native", description=__doc__)
    parser.add_argument("--architectures", default="riscv64,aarch64,x86_64", metavar="A,B")
    parser.add_argument("--model", type=Path, help="ONNX file; MobileNetV2 is made by default")
    parser.add_argument("--cold", action="store_true", help="also build from nothing")
    add_json_option(parser)
    options = parser.parse_args()
    about = heading("benchmarks.native", SCHEMA)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model = options.model or export("mobilenetv2", folder / "models", "onnx")
        result = {
            "executables": {name: build(name, options.cold) for name in options.architectures.split(",")},
            "resident_bytes": memory(model, folder),
        }
    print(json.dumps(result, indent=1))
    write_result(options.json, about | result)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
