"""Instructions of whole models by numeric type on an emulated board.

    python -m benchmarks.emulation.numeric_types mobilenetv2 resnet50 vit-tiny [--target raspberry_pi_5]
                                        [--types fp32 fp16 int8] [--device pi5] --json FILE

Each model is compiled in single precision, with `--dtype fp16`, and with static quantisation by ONNX
Runtime's tools (QDQ), and the instructions of one call of each kernel are counted. They are no times.

With `--device`, an emulated board of the same kind (`sdk devices emulate aarch64 --name pi5 --board
raspberry_pi_5`), each is deployed there behind all counts, and its outputs are verified. Results are written
after each model and type; `--resume` keeps those of the same command and commit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.e2e.__main__ import export_model
from benchmarks.e2e.quantised_file import quantised_file
from benchmarks.instructions.whole_models import CountedKernel, counted_kernels
from benchmarks.result_file import add_json_option, heading, models_so_far, write_result
from host.errors import EdgeError, one_line
from host.options import CompileOptions

SCHEMA = "edgetlm.emulated_types/2"
TYPES = ("fp32", "fp16", "int8")


def counted(path: Path, target: str, dtype: str) -> dict[str, Any]:
    """The instructions of one model.

    Args:
        path: of the model.
        target: the board that it is compiled for.
        dtype: as of `sdk deploy --dtype`.

    Returns:
        The fields of `figures_of`; or "instructions" null, and "error" with the reason.
    """
    with tempfile.TemporaryDirectory(prefix="edgetlm-emulated-") as name:
        options = CompileOptions(
            model=path, dtype=dtype, threads=1, backend="tvm", records=str(Path(name) / "records.sqlite")
        )
        try:
            return figures_of(counted_kernels(options, target))
        except EdgeError as error:
            return {"instructions": None, "error": one_line(error)[:300]}


def figures_of(kernels: Sequence[CountedKernel]) -> dict[str, Any]:
    """Instructions of one run in all, of each kernel, and by rule."""
    rules: Counter[str] = Counter()
    for one in kernels:
        rules[one.rule or "default"] += one.in_all
    return {
        "instructions": sum(one.in_all for one in kernels),
        "rules": dict(rules.most_common()),
        "kernels": [asdict(one) for one in kernels],
    }


def deployed(path: Path, device: str, dtype: str) -> dict[str, Any]:
    """What deploying a model to an emulated device finds.

    Args:
        path: of the model.
        device: its name.
        dtype: as of `sdk deploy --dtype`.

    Returns:
        The fields of `verification_of`; or "verified" false, and "error" with the reason.
    """
    with tempfile.TemporaryDirectory(prefix="edgetlm-emulated-") as name:
        answer = Path(name) / "answer.json"
        words = ["deploy", str(path.absolute()), "--device", device, "--threads", "1", "--dtype", dtype]
        words += ["--backend", "tvm", "--records", str(Path(name) / "records.sqlite")]
        done = subprocess.run(
            [sys.executable, "-m", "sdk.cli", *words, "--json", str(answer)],
            cwd=name,
            check=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if done.returncode != 0:
            reason = next(reversed(done.stderr.strip().splitlines()), f"exit code {done.returncode}")
            return {"verified": False, "error": reason[:300]}
        return verification_of(json.loads(answer.read_text(encoding="utf-8")))


def verification_of(report: dict[str, Any]) -> dict[str, Any]:
    """The outcome of a deployment out of the JSON that `sdk deploy` writes.

    Returns:
        "verified", "max_rel_err" and "tolerance" of the outputs, and "instructions": where sums in halves are
        left out because the outputs are wrong with them, they are others than those counted before.
    """
    verify = report["verify"]
    return {
        "verified": verify["passed"],
        "max_rel_err": verify["max_rel_err"],
        "tolerance": verify["tolerance"],
        "instructions": report["instructions"],
    }


def with_ratios(types: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The figures of a model by type, each with its share of the instructions of single precision."""
    single = types.get("fp32", {}).get("instructions")
    return {
        name: {
            **entry,
            "ratio": entry["instructions"] / single if single and entry["instructions"] else None,
        }
        for name, entry in types.items()
    }


def right(entry: dict[str, Any]) -> bool:
    """Whether a model was counted and, where it was deployed, verified with the program that was counted."""
    if entry["instructions"] is None:
        return False
    found = entry.get("deployment")
    return found is None or (found["verified"] and found["instructions"] == entry["instructions"])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.emulation.numeric_types", description=__doc__)
    parser.add_argument("models", nargs="+", help="of the zoo, see research.models")
    parser.add_argument("--target", default="raspberry_pi_5", help="board of aarch64")
    parser.add_argument("--types", nargs="+", default=list(TYPES), choices=TYPES)
    parser.add_argument("--device", default="", help="name of an emulated board of that kind: verifies there")
    parser.add_argument("--files", type=Path, default=Path("models"), help="folder of the models' files")
    parser.add_argument("--resume", action="store_true", help="keep what the file of --json has already")
    add_json_option(parser, required=True)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 0 if every model was counted and none that was deployed is wrong."""
    options = _parser().parse_args(arguments)
    head = heading("benchmarks.emulation.numeric_types", SCHEMA, arguments)
    found: dict[str, dict[str, Any]] = models_so_far(options.json, head) if options.resume else {}
    options.files.mkdir(parents=True, exist_ok=True)

    def keep(model: str, name: str, entry: dict[str, Any]) -> None:
        found[model] = with_ratios({**found.get(model, {}), name: entry})
        shown = {key: value for key, value in found[model][name].items() if key != "kernels"}
        print(model, name, json.dumps(shown), flush=True)
        write_result(options.json, {**head, "target": options.target, "models": found})

    wanted = [(model, name) for model in options.models for name in options.types]
    for model, name in wanted:
        if not found.get(model, {}).get(name, {}).get("instructions"):
            path = _file(model, name, options.files)
            keep(model, name, counted(path, options.target, _dtype(name)))
    for model, name in wanted if options.device else ():
        entry = found[model][name]
        if entry["instructions"] and not entry.get("deployment", {}).get("verified"):
            path = _file(model, name, options.files)
            keep(model, name, {**entry, "deployment": deployed(path, options.device, _dtype(name))})
    return 0 if all(right(found[model][name]) for model, name in wanted) else 1


def _file(model: str, name: str, folder: Path) -> Path:
    """The file of a model in a numeric type."""
    path = export_model(model, "onnx", folder)
    return quantised_file(path, path.with_suffix(".int8.onnx")) if name == "int8" else path


def _dtype(name: str) -> str:
    """The option `--dtype` for a numeric type; quantised files are computed as they are."""
    return "fp16" if name == "fp16" else "fp32"


if __name__ == "__main__":
    sys.exit(main())
