"""Instructions of whole models by numeric type on an emulated board.

    sdk devices emulate aarch64 --name pi5 --board raspberry_pi_5
    python -m benchmarks.emulation.numeric_types mobilenetv2 resnet50 vit-tiny [--device pi5]
                                        [--types fp32 fp16 int8] --json FILE

Each model is deployed in single precision, with `--dtype fp16`, and with static quantisation by ONNX
Runtime's tools (QDQ). Its outputs are verified on the emulated board, and the instructions of one run of all
kernels are counted. They are no times. Results are written after each deployment, and `--resume` goes on.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.e2e.__main__ import export_model
from benchmarks.e2e.quantised_file import quantised_file
from benchmarks.result_file import add_json_option, heading, read_result, write_result

SCHEMA = "edgetlm.emulated_types/1"
TYPES = ("fp32", "fp16", "int8")


def deployed(path: Path, device: str, dtype: str) -> dict[str, Any]:
    """The figures of one deployment.

    Args:
        path: of the model.
        device: an emulated one.
        dtype: as of `sdk deploy --dtype`.

    Returns:
        "instructions" of one run, null where nothing was deployed; "max_rel_err", "tolerance" and "verified"
        of the outputs; "error", the reason where nothing was deployed.
    """
    with tempfile.TemporaryDirectory(prefix="edgetlm-emulated-") as name:
        answer = Path(name) / "answer.json"
        words = ["deploy", str(path.absolute()), "--device", device, "--threads", "1", "--dtype", dtype]
        done = subprocess.run(
            [sys.executable, "-m", "sdk.cli", *words, "--backend", "tvm", "--json", str(answer)],
            cwd=name,
            check=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if done.returncode != 0:
            reason = next(reversed(done.stderr.strip().splitlines()), f"exit code {done.returncode}")
            return {"instructions": None, "verified": False, "error": reason[:300]}
        found = json.loads(answer.read_text(encoding="utf-8"))
    return figures_of(found)


def figures_of(report: dict[str, Any]) -> dict[str, Any]:
    """The figures of the JSON that `sdk deploy` writes."""
    verify = report["verify"]
    return {
        "instructions": report["instructions"],
        "max_rel_err": verify["max_rel_err"],
        "tolerance": verify["tolerance"],
        "verified": verify["passed"],
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.emulation.numeric_types", description=__doc__)
    parser.add_argument("models", nargs="+", help="of the zoo, see research.models")
    parser.add_argument("--device", default="pi5", help="name of the emulated device")
    parser.add_argument("--types", nargs="+", default=list(TYPES), choices=TYPES)
    parser.add_argument("--files", type=Path, default=Path("models"), help="folder of the models' files")
    parser.add_argument("--resume", action="store_true", help="keep what the file of --json has already")
    add_json_option(parser, required=True)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _parser().parse_args(arguments)
    found: dict[str, dict[str, Any]] = {}
    if options.resume and options.json.is_file():
        found = {name: dict(types) for name, types in read_result(options.json).figures["models"].items()}
    head = heading("benchmarks.emulation.numeric_types", SCHEMA, arguments)
    options.files.mkdir(parents=True, exist_ok=True)
    for model in options.models:
        path = export_model(model, "onnx", options.files)
        types = found.setdefault(model, {})
        for name in options.types:
            if types.get(name, {}).get("instructions"):
                continue
            file = quantised_file(path, path.with_suffix(".int8.onnx")) if name == "int8" else path
            types[name] = deployed(file, options.device, "fp16" if name == "fp16" else "fp32")
            found[model] = with_ratios(types)
            types = found[model]
            print(model, name, json.dumps(types[name]), flush=True)
            write_result(options.json, {**head, "device": options.device, "models": found})
    return 0 if all(one["verified"] for types in found.values() for one in types.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
