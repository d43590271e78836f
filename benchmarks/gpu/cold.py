"""A bundle from cold: what `sdk compile` takes for a board that need not be there, with empty caches.

    python -m benchmarks.gpu.cold resnet50 [--target jetson_orin_nano] [--processor gpu] [--dtype fp16]

The command has empty folders for the user's files. Its time is that of everything: from the start of Python
to the written bundle, with golden cases out of the original runtime. Seconds of the processor are those of
the command and of what it waits for.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.result_file import ROOT, add_json_option, heading, write_result
from host.errors import UserError
from research.models.export import export

SCHEMA = "edgetlm.gpu_cold/1"


def compiled(model: Path, options: Sequence[str], folder: Path) -> dict[str, Any]:
    """One command, timed.

    Args:
        model: a file.
        options: of `sdk compile`.
        folder: empty; it gets the user's files and the bundle.

    Returns:
        `wall_s`, `cpu_s`, `peak_bytes` (of resident memory, of its largest process) and `bundle_bytes`.

    Raises:
        UserError: the command failed, with the last line that it wrote.
    """
    homes = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
    kept = {name: text for name, text in os.environ.items() if not name.startswith("EDGETLM")}
    bundle = folder / "bundle"
    command = [sys.executable, "-m", "sdk.cli", "compile", str(model), "-o", str(bundle), *options]
    with tempfile.TemporaryFile("w+") as said:
        begin = time.monotonic()
        process = subprocess.Popen(
            command, cwd=ROOT, env={**kept, **homes}, stdout=said, stderr=subprocess.STDOUT
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - begin
        # What `wait4` took is no longer there for `Popen` to wait for.
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        last = (said.read().strip().splitlines() or ["nothing was said"])[-1]
    if process.returncode:
        raise UserError(f"sdk compile ended with code {process.returncode}: {last}")
    return {
        "wall_s": round(seconds, 1),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_bytes": usage.ru_maxrss << 10,
        "bundle_bytes": sum(path.stat().st_size for path in bundle.rglob("*") if path.is_file()),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.cold", description=__doc__)
    parser.add_argument("model", nargs="+", help="models of the zoo")
    parser.add_argument("--target", default="jetson_orin_nano")
    parser.add_argument("--processor", default="gpu", choices=("cpu", "gpu"))
    parser.add_argument("--dtype", default="fp16")
    add_json_option(parser)
    given = parser.parse_args(arguments)
    result = heading("benchmarks.gpu.cold", SCHEMA, arguments)
    options = ["--target", given.target, "--processor", given.processor, "--dtype", given.dtype]
    rows = []
    for model in given.model:
        with tempfile.TemporaryDirectory(prefix="edgetlm-cold-") as name:
            folder = Path(name)
            file = export(model, folder, "onnx")
            user = folder / "user"
            user.mkdir()
            rows.append({"model": model, **compiled(file, options, user)})
        row = rows[-1]
        print(f"{model}: {row['wall_s']} s, {row['cpu_s']} s of the processor", flush=True)
    about = {"target": given.target, "processor": given.processor, "dtype": given.dtype}
    write_result(given.json, {**result, **about, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
