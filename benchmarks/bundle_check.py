"""What it costs to check a bundle at load: signature, manifest, and every byte. Prints one JSON object.

    python -m benchmarks.bundle_check [--megabytes 100] [--repeats 15] [--json FILE]

The bundle's library is none, so the engine's refusal ends the load right after the check. The Python
executor's check is timed by itself, the native executor's by its answer. "first" is the check that reads
every file (once a boot and after a change), "remembered" any later one. Files lie in the page cache. For
scale, `read_s` is the time to read the files once and `sha256_s` that of OpenSSL's SHA-256 over them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.result_file import add_json_option, heading, write_result
from device_agent.store.opened_bundle import open_bundle
from host.payload.native import native_executor
from tests.integration.native.process import Executor
from tests.signing import seal, trust

SCHEMA = "edgetlm.bundle_check/1"

# Files younger than this are not remembered as checked.
_SETTLE_S = 2.5


def make(folder: Path, megabytes: int) -> Path:
    """A bundle with so many megabytes of parameters."""
    folder.mkdir()
    (folder / "lib.so").write_bytes(b"no library")
    count = megabytes * 1_000_000 // 64 * 16
    (folder / "params.bin").write_bytes(os.urandom(4 * count))
    parameters = [{"offset": 0, "nbytes": 4 * count, "shape": [count], "dtype": "float32"}]
    seal(folder, parameters=parameters)
    return folder


def median_s(call: Callable[[], object], repeats: int) -> float:
    """Median seconds of a call, after one that is not counted."""
    times = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return round(statistics.median(times[1:]), 4)


def python_check(bundle: Path, keys: Path, repeats: int) -> dict[str, float]:
    """Seconds of the check as the Python executor and applications make it."""

    def first() -> None:
        shutil.rmtree(keys.parent / "verified", ignore_errors=True)
        open_bundle(str(bundle), keys=str(keys))

    return {
        "first_s": median_s(first, repeats),
        "remembered_s": median_s(lambda: open_bundle(str(bundle), keys=str(keys)), repeats),
    }


def native_check(bundle: Path, keys: Path, folder: Path, repeats: int) -> dict[str, float]:
    """Seconds from a request to load to the refusal of the library, which follows the check."""
    with Executor(
        [str(native_executor(platform.machine()))], folder / "session", trust_file=str(keys)
    ) as running:

        def load() -> None:
            reply, _ = running.ask("load", path=str(bundle))
            assert reply["error"]["kind"] == "engine", reply

        def first() -> None:
            shutil.rmtree(keys.parent / "verified", ignore_errors=True)
            load()

        return {"first_s": median_s(first, repeats), "remembered_s": median_s(load, repeats)}


def main() -> int:
    """Time the check of a bundle by both executors and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=15)
    add_json_option(parser)
    options = parser.parse_args()
    about = heading("benchmarks.bundle_check", SCHEMA)
    with tempfile.TemporaryDirectory(prefix="edgetlm-check-") as name:
        folder = Path(name)
        os.environ["EDGETLM_KEYS"] = str(folder / "keys")
        bundle, keys = make(folder / "bundle", options.megabytes), folder / "device" / "trust.json"
        trust(keys)
        time.sleep(_SETTLE_S)
        content = (bundle / "params.bin").read_bytes()
        result: dict[str, Any] = {
            "megabytes": options.megabytes,
            "read_s": median_s((bundle / "params.bin").read_bytes, options.repeats),
            "sha256_s": median_s(lambda: hashlib.sha256(content).hexdigest(), options.repeats),
            "python_executor": python_check(bundle, keys, options.repeats),
            "native_executor": native_check(bundle, keys, folder, options.repeats),
        }
    print(json.dumps(result, indent=1))
    write_result(options.json, about | result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
