"""Cold deployments on this machine: wall time, processor time, and peak memory of all processes together.

    python -m benchmarks.cold [--models NAME,...] [--repeats 3] [--root FOLDER] [--files FOLDER]
        [--json FILE]

Each deployment is `sdk deploy MODEL.onnx` in a process of its own, with empty folders for the user's files,
so that no kernel is compiled and nothing is measured before; rounds and peers are the command's own. Modules
are compiled to bytecode beside their sources, as in an installed package: a first deployment, which is not
counted, does that. The timed ones are watched by nobody. Another one has its memory read every 50 ms: the
proportional set sizes of the command, its workers, the agent and the sessions, with the pages of mapped
files. What is there for a shorter time may be missed. `--root` deploys with another checkout, `--files` keeps
the model files.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cold.models import VGG11, model_file
from benchmarks.result_file import ROOT, add_json_option, heading, write_result
from host.compare.text_peers.process_memory import PeakMemory
from host.errors import UserError

SCHEMA = "edgetlm.cold/1"
MODELS = ("mobilenetv2", "resnet50", VGG11)
_INTERVAL_S = 0.05
_NOT_OURS = ("PYTHON", "EDGETLM", "XDG_")
# What the command line of a process says about its part in a deployment.
_PARTS = {
    "host.sandbox.child": "worker",
    "device_agent.execute.engines": "reference",
    "device_agent.execute.executor": "sessions",
    "device_agent": "agent",
    "sdk.cli": "command",
}


@dataclass(frozen=True)
class Deployment:
    """One cold deployment.

    Attributes:
        wall_s: seconds from the start of the command to its end.
        cpu_s: of the processor, user and system, of the command and of all that it and its agent waited for.
        figures: what the command wrote with `--json`.
        peak_bytes: of memory; 0 where nobody watched.
        parts: of it, by the part that processes have.
    """

    wall_s: float
    cpu_s: float
    figures: dict[str, Any]
    peak_bytes: int = 0
    parts: dict[str, int] | None = None


def deployed(model: Path, root: Path, watched: bool = False, options: Sequence[str] = ()) -> Deployment:
    """Deploy a model file from cold.

    Args:
        model: absolute.
        root: the checkout whose command it is.
        watched: whether memory is read meanwhile.
        options: further ones of the command.

    Raises:
        UserError: the deployment failed, with the last line that it wrote.
    """
    with tempfile.TemporaryDirectory(prefix="edgetlm-cold-") as name:
        folder = Path(name)
        figures, said = folder / "figures.json", folder / "said"
        command = [sys.executable, "-m", "sdk.cli", "deploy", str(model), "--json", str(figures), *options]
        with said.open("wb") as output:
            begin = time.monotonic()
            process = subprocess.Popen(
                command, cwd=folder, env=_environment(folder, root), stdout=output, stderr=subprocess.STDOUT
            )
            memory = PeakMemory(process.pid, _INTERVAL_S)
            if watched:
                with memory:
                    _, status, usage = os.wait4(process.pid, 0)
            else:
                _, status, usage = os.wait4(process.pid, 0)
            wall_s = time.monotonic() - begin
        # What `wait4` took is no longer there for `Popen` to wait for.
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            last = (said.read_text(errors="replace").strip().splitlines() or ["nothing was said"])[-1]
            raise UserError(f"{shlex.join(command[3:5])} ended with code {process.returncode}: {last}")
        return Deployment(
            wall_s=wall_s,
            cpu_s=usage.ru_utime + usage.ru_stime,
            figures=json.loads(figures.read_text()),
            peak_bytes=memory.peak_bytes,
            parts=by_part(memory.at_peak) if watched else None,
        )


def _environment(folder: Path, root: Path) -> dict[str, str]:
    """The variables of a user who has nothing yet; modules are compiled beside their sources."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(_NOT_OURS)}
    homes = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CACHE", "CONFIG", "DATA", "STATE")}
    (folder / "home").mkdir()
    return {**kept, **homes, "HOME": str(folder / "home"), "PYTHONPATH": str(root), "COLUMNS": "80"}


def by_part(processes: Sequence[tuple[Sequence[str], int]]) -> dict[str, int]:
    """Bytes by part of a deployment, the largest first.

    Args:
        processes: command lines, with the bytes of each.
    """
    found: dict[str, int] = {}
    for words, size in processes:
        part = next((part for module, part in _PARTS.items() if module in words), "other")
        found[part] = found.get(part, 0) + size
    return dict(sorted(found.items(), key=lambda one: -one[1]))


def measured(name: str, file: Path, root: Path, repeats: int) -> dict[str, Any]:
    """The figures of one model."""
    runs = [deployed(file, root) for _ in range(repeats)]
    watched = deployed(file, root, watched=True)
    fastest = min(runs, key=lambda one: one.wall_s)
    return {
        "model": name,
        "file_bytes": file.stat().st_size,
        "wall_s": _least_and_median([one.wall_s for one in runs]),
        "cpu_s": _least_and_median([one.cpu_s for one in runs]),
        "stages_s": {stage: round(seconds, 2) for stage, seconds in fastest.figures["seconds"].items()},
        "max_rel_err": fastest.figures["verify"]["max_rel_err"],
        "peak_bytes": watched.peak_bytes,
        "peak_parts_bytes": watched.parts,
    }


def _least_and_median(seconds: Sequence[float]) -> dict[str, Any]:
    rounded = [round(one, 2) for one in seconds]
    return {"least": min(rounded), "median": round(statistics.median(seconds), 2), "all": rounded}


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cold", description=__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--files", type=Path)
    add_json_option(parser)
    given = parser.parse_args(arguments)
    result = heading("benchmarks.cold", SCHEMA, arguments)
    root, rows = given.root.resolve(), []
    with tempfile.TemporaryDirectory(prefix="edgetlm-cold-") as scratch:
        folder = (given.files or Path(scratch)).resolve()
        files = {name: model_file(name, folder) for name in given.models.split(",")}
        deployed(next(iter(files.values())), root)
        for name, file in files.items():
            rows.append(row := measured(name, file, root, given.repeats))
            wall, cpu = row["wall_s"], row["cpu_s"]
            print(
                f"{name:<16} {wall['least']:6.1f} s (median {wall['median']:.1f})  processor"
                f" {cpu['least']:6.1f} s  peak {row['peak_bytes'] / 1e6:6.0f} MB of a file of"
                f" {row['file_bytes'] / 1e6:.0f} MB",
                flush=True,
            )
    write_result(given.json, result | {"repeats": given.repeats, "models": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
