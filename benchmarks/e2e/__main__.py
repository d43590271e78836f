"""Models from file to verified figures, ours beside the peers: `python -m benchmarks.e2e --json FILE`.

Each model is deployed by a process of its own with an empty kernel cache, so that seconds count everything
from cold. A model is a name of the zoo, a name with a format (`bert-tiny:pt2`), a name whose ONNX file is
quantised first (`resnet50:int8`), a name that is deployed in bfloat16 with our own fp32 as a peer
(`resnet50:bf16`), a decoder whose step with its caches is deployed (`gpt2:step`), a path, or `all`: every
model of the zoo. With `--resume`, models that FILE has already from the same command and commit are not run
again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.e2e.quantised_file import quantised_file
from benchmarks.e2e.summary import summary_of
from benchmarks.result_file import add_json_option, heading, models_so_far, write_result
from host.compare.text_peers.process_memory import PeakMemory
from host.options import SINGLE_PRECISION

SCHEMA = "edgetlm.e2e/1"
_STAGES = ("import", "lower", "propose", "build", "measure")
_FORMATS = ("onnx", "pt2", "tflite")
_READS = {"onnxruntime": ("onnx",), "openvino": ("onnx", "tflite"), "litert": ("tflite",), "torch": ("pt2",)}
# Sources that the table always shows, zero or not.
_SOURCES = ("gensor", "tlm", "evolutionary", "default")


@dataclass(frozen=True)
class Subject:
    """A model to deploy.

    Attributes:
        name: key in the results.
        path: its file.
        peer_files: the same model for engines that do not read that format.
        dtype: option of the deployment.
    """

    name: str
    path: Path
    peer_files: dict[str, Path]
    dtype: str = "fp32"


def find_subject(text: str, peers: Sequence[str], models: Path) -> Subject:
    """A model by path or by name in the zoo, exported in every format that its peers read."""
    if Path(text).suffix.lstrip(".") in _FORMATS and Path(text).is_file():
        return Subject(Path(text).stem, Path(text), {})
    from research.models.zoo import ZOO

    name, _, wanted = text.partition(":")
    if name not in ZOO:
        raise SystemExit(f"no model {text!r}: give a file or one of {', '.join(ZOO)}")
    if wanted == "int8":
        path = quantised_file(export_model(name, "onnx", models), models / f"{name}.int8.onnx")
        return Subject(text, path, {})
    if wanted == "step":
        from benchmarks.e2e.decode_step import decode_step_file

        return Subject(text, decode_step_file(name, models / f"{name}.step.onnx"), {})
    if wanted == "bf16":
        return Subject(text, export_model(name, "onnx", models), {}, dtype="bf16")
    wanted = wanted or "onnx"
    path = export_model(name, wanted, models)
    peer_files = {}
    for peer in peers:
        formats = [one for one in _READS[peer] if one in ZOO[name].formats]
        if wanted not in _READS[peer] and formats:
            peer_files[peer] = export_model(name, formats[0], models)
    return Subject(text, path, peer_files)


def export_model(name: str, format_name: str, models: Path) -> Path:
    """The file of a model of the zoo in a folder, made if it is not there."""
    path = models / f"{name}.{format_name}"
    if not path.is_file():
        command = [
            sys.executable,
            "-m",
            "research.models.export",
            name,
            "-o",
            str(models),
            "--format",
            format_name,
        ]
        done = subprocess.run(
            command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        if done.returncode != 0:
            reason = next(reversed(done.stderr.strip().splitlines()), f"exit code {done.returncode}")
            raise SystemExit(f"{name} cannot be written as {format_name}: {reason}")
    return path


def deploy_apart(subject: Subject, options: argparse.Namespace) -> dict[str, Any]:
    """Deploy one model in a process of its own; returns its entry of the results."""
    with tempfile.TemporaryDirectory(prefix="edgetlm-e2e-") as folder:
        answer = Path(folder) / "answer.json"
        request = {
            "model": str(subject.path.absolute()),
            "peer_files": {name: str(path.absolute()) for name, path in subject.peer_files.items()},
            "peers": [
                *(options.peers.split(",") if options.peers else []),
                *([SINGLE_PRECISION] if subject.dtype != "fp32" else []),
            ],
            "dtype": subject.dtype,
            "threads": options.threads,
            "trials": options.trials,
            "rounds": options.rounds,
            "seed": options.seed,
            "backend": options.backend,
            "answer": str(answer),
            "bundle": str(Path(folder) / "bundle"),
        }
        environment = dict(os.environ)
        if not options.warm:
            environment["XDG_CACHE_HOME"] = str(Path(folder) / "cache")
        begin = time.perf_counter()
        command = [sys.executable, "-m", "benchmarks.e2e", "--child", json.dumps(request)]
        with (
            subprocess.Popen(
                command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            ) as child,
            PeakMemory(child.pid) as memory,
        ):
            _, errors = child.communicate()
        total = time.perf_counter() - begin
        if not answer.is_file():
            lines = [line for line in errors.splitlines() if line.strip()]
            return _failed(lines[-1] if lines else f"exit code {child.returncode}", total)
        entry: dict[str, Any] = json.loads(answer.read_text())
    entry["seconds"]["total"] = total
    entry["peak_rss_mb"] = memory.peak_bytes / 1e6
    entry["model_mb"] = subject.path.stat().st_size / 1e6
    return entry


def _failed(reason: str, total: float) -> dict[str, Any]:
    return {
        "verified": False,
        "max_rel_err": None,
        "latency_ms": {},
        "speedup": {},
        "kernels": dict.fromkeys(_SOURCES, 0),
        "from_database": 0,
        "default_share": None,
        "outside_share": None,
        "seconds": {**dict.fromkeys(_STAGES, 0.0), "total": total},
        "peak_rss_mb": None,
        "error": reason,
    }


def child(request: dict[str, Any]) -> None:
    """The process of one model."""
    from host.deploy import DeployOptions, deploy

    options = DeployOptions(
        model=Path(request["model"]),
        backend=request["backend"],
        dtype=request["dtype"],
        threads=request["threads"],
        trials=request["trials"],
        seed=request["seed"],
        bundle=Path(request["bundle"]),
        peers=tuple(request["peers"]),
        peer_files={name: Path(path) for name, path in request["peer_files"].items()},
        rounds=request["rounds"],
        install=False,
        command="python -m benchmarks.e2e",
    )
    result = deploy(options)
    ours = result.contenders["tvm"]
    assert ours.verification is not None
    latencies = {
        "edgetlm" if name == "tvm" else name: one.measurement.median_s * 1e3
        for name, one in result.contenders.items()
        if one.measurement is not None
    }
    speeds = speeds_of(latencies, result.ratios)
    kernels = Counter(dict.fromkeys(_SOURCES, 0))
    kernels.update(task.source for task in result.tasks)
    entry = {
        "verified": ours.verification.passed,
        "max_rel_err": ours.verification.max_rel_err,
        "latency_ms": latencies,
        "speedup": {name: speed for name, (speed, _, _) in speeds.items()},
        "bounds": {name: [low, high] for name, (_, low, high) in speeds.items() if low is not None},
        "kernels": dict(kernels),
        "from_database": sum(task.from_database for task in result.tasks),
        "default_share": result.default_share,
        "outside_share": _outside(result.tasks, latencies["edgetlm"] / 1e3),
        "seconds": {stage: result.seconds.get(stage, 0.0) for stage in _STAGES}
        | {stage: seconds for stage, seconds in result.seconds.items() if stage not in _STAGES},
        "peer_errors": {
            name: one.reason for name, one in result.contenders.items() if one.measurement is None
        },
    }
    Path(request["answer"]).write_text(json.dumps(entry))


def _outside(tasks: Sequence[Any], model_s: float) -> float | None:
    """Share of the model's time that no kernel accounts for, these timed inside the running model."""
    times = [task.latency_us * 1e-6 * task.weight for task in tasks if task.latency_us is not None]
    return 1.0 - sum(times) / model_s if len(times) == len(tasks) else None


def speeds_of(
    latencies: Mapping[str, float], ratios: Mapping[str, tuple[float, float, float]]
) -> dict[str, tuple[float, float | None, float | None]]:
    """Speed to each peer, and its 95% bounds: of the rounds that both took part in.

    Latencies are medians of all rounds. Their ratio may lie outside of these bounds, and is taken only where
    there are none.

    Args:
        latencies: of "edgetlm" and its peers.
        ratios: time of each peer over ours, by rounds, with bounds; of those that have them.
    """
    return {
        name: ratios.get(name, (latency / latencies["edgetlm"], None, None))
        for name, latency in latencies.items()
        if name != "edgetlm"
    }


def show(name: str, entry: dict[str, Any]) -> None:
    """Print one model's latency, its peers and its kernels in a line."""
    if "error" in entry:
        sys.stdout.write(f"{name:<24} failed: {entry['error']}\n")
        return
    peers = " ".join(
        f"{peer} {entry['latency_ms'][peer]:.2f} ms ({ratio:.2f}x)"
        for peer, ratio in entry["speedup"].items()
    )
    kernels = ", ".join(f"{count} {source}" for source, count in entry["kernels"].items() if count)
    outside = "unknown" if entry["outside_share"] is None else f"{entry['outside_share']:.1%}"
    sys.stdout.write(
        f"{name:<24} {entry['latency_ms']['edgetlm']:9.2f} ms  {peers}  error {entry['max_rel_err']:.1e}  "
        f"[{kernels}; default {entry['default_share']:.1%}; outside {outside}]  "
        f"{entry['seconds']['total']:.0f} s  {entry['peak_rss_mb']:.0f} MB\n"
    )
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.e2e", description=__doc__)
    parser.add_argument(
        "--models",
        nargs="+",
        default=["mobilenetv2"],
        help="names, name:format, name:int8, name:bf16, name:step, paths, or all",
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--trials", type=int, default=0)
    parser.add_argument(
        "--peers", default="onnxruntime", help="comma-separated: onnxruntime,litert,openvino,torch"
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="tvm")
    parser.add_argument("--warm", action="store_true", help="use the kernel cache of earlier runs")
    parser.add_argument("--models-dir", type=Path, default=Path("edgetlm-out/models"))
    parser.add_argument("--resume", action="store_true", help="keep the models that the result file has")
    add_json_option(parser)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        child(json.loads(options.child))
        return 0
    peers = options.peers.split(",") if options.peers else []
    results = heading("benchmarks.e2e", SCHEMA, arguments)
    models: dict[str, Any] = models_so_far(options.json, results) if options.resume else {}
    for text in _names(options.models):
        subject = find_subject(text, peers, options.models_dir)
        if subject.name in models:
            continue
        models[subject.name] = deploy_apart(subject, options)
        show(subject.name, models[subject.name])
        write_result(options.json, results | {"models": models, "summary": summary_of(models)})
    if len(models) > 1:
        print(summary_of(models))
    return 0 if all(entry["verified"] for entry in models.values()) else 1


def _names(words: Sequence[str]) -> list[str]:
    names = [name for text in words for name in text.split(",")]
    if names != ["all"]:
        return names
    from research.models.zoo import ZOO

    return list(ZOO)


if __name__ == "__main__":
    sys.exit(main())
