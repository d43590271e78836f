"""From the wheel in an empty environment to a verified model: what each step takes.

    python -m benchmarks.first_model [--model mobilenetv2] [--json FILE]

The wheel is built from the files of this checkout. The packages of `edgetlm[cpu]` come from wherever pip is
configured to look, by the hashes of requirements/cpu.txt and without pip's cache. The deployment has empty
folders for the user's files, so nothing is compiled or measured before. Seconds of the processor are those of
a step and of the children that it waits for.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.result_file import ROOT, add_json_option, heading, write_result
from host.errors import UserError
from research.models.export import export

SCHEMA = "edgetlm.first_model/1"
_PINS = ROOT / "requirements" / "cpu.txt"


class Steps:
    """Steps that were timed.

    Args:
        folder: in which they run.
    """

    def __init__(self, folder: Path) -> None:
        self.rows: list[dict[str, Any]] = []
        self._folder = folder
        homes = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "EDGETLM"))}
        self._environment = {**kept, **homes, "PIP_NO_CACHE_DIR": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

    def run(self, title: str, command: Sequence[str]) -> None:
        """Run one.

        Raises:
            UserError: it failed, with the last line that it wrote.
        """
        with tempfile.TemporaryFile("w+") as said:
            begin = time.monotonic()
            process = subprocess.Popen(
                command, cwd=self._folder, env=self._environment, stdout=said, stderr=subprocess.STDOUT
            )
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.monotonic() - begin
            # What `wait4` took is no longer there for `Popen` to wait for.
            process.returncode = os.waitstatus_to_exitcode(status)
            said.seek(0)
            last = (said.read().strip().splitlines() or ["nothing was said"])[-1]
        if process.returncode:
            raise UserError(f"{title} ended with code {process.returncode}: {last}")
        cpu_s = round(usage.ru_utime + usage.ru_stime, 1)
        self.rows.append({"step": title, "wall_s": round(seconds, 1), "cpu_s": cpu_s})
        print(f"{seconds:7.1f} s  {cpu_s:7.1f} s of the processor  {title}", flush=True)


def sources(root: Path) -> list[str]:
    """What the build of a wheel reads of a checkout: what pyproject.toml names, without what Git ignores.

    Raises:
        UserError: this is no checkout.
    """
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    project, found = settings["project"], settings["tool"]["setuptools"]["packages"]["find"]
    packages = {re.split(r"[.*]", pattern)[0] for pattern in found["include"]}
    files = {"pyproject.toml", project["readme"], *project["license-files"]}
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if listed.returncode:
        raise UserError(f"the wheel is built from a checkout: {listed.stderr.strip()}")
    names = [name for name in listed.stdout.split("\0") if (root / name).is_file()]
    return [name for name in names if name in files or name.split("/")[0] in packages]


def built_wheel(folder: Path) -> Path:
    """The wheel of this checkout, built apart from it.

    Raises:
        UserError: it cannot be built, with what the build wrote.
    """
    source = folder / "source"
    for name in sources(ROOT):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, source / name)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(folder), str(source)]
    built = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    shutil.rmtree(source)
    if built.returncode:
        raise UserError(f"the wheel cannot be built:\n{built.stdout.strip()}")
    [wheel] = folder.glob("*.whl")
    return wheel


def measured(model: str, folder: Path) -> dict[str, Any]:
    """The figures of all steps.

    Args:
        model: of the zoo, exported before the first step.
        folder: empty.

    Raises:
        UserError: a step failed.
    """
    wheel, file = built_wheel(folder), export(model, folder, "onnx")
    steps, python = Steps(folder), folder / "environment" / "bin" / "python"
    steps.run("make an environment", [sys.executable, "-m", "venv", str(folder / "environment")])
    pip = [str(python), "-m", "pip", "install", "--quiet"]
    steps.run("install the packages", [*pip, "--no-deps", "--require-hashes", "-r", str(_PINS)])
    steps.run("install the wheel", [*pip, "--no-deps", "--no-index", str(wheel)])
    installed = sum(path.lstat().st_size for path in (folder / "environment").rglob("*") if path.is_file())
    figures = folder / "figures.json"
    deploy = [str(python.with_name("sdk")), "deploy", str(file), "--threads", "1", "--json", str(figures)]
    steps.run("deploy the model", deploy)
    steps.run("deploy it again", deploy)
    error = json.loads(figures.read_text())["verify"]["max_rel_err"]
    return {
        "model": model,
        "wheel_bytes": wheel.stat().st_size,
        "installed_bytes": installed,
        "max_rel_err": error,
        "steps": steps.rows,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="From the wheel to a verified model.")
    parser.add_argument("--model", default="mobilenetv2")
    add_json_option(parser)
    given = parser.parse_args(arguments)
    result = heading("benchmarks.first_model", SCHEMA, arguments)
    with tempfile.TemporaryDirectory(prefix="edgetlm-first-") as name:
        figures = measured(given.model, Path(name))
    write_result(given.json, result | figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
