"""Measures a kit on a machine with a GPU: `python3 -m benchmarks.gpu KIT RESULTS`.

It needs Python 3.11, NumPy and NVIDIA's driver, for peers torch and onnxruntime-gpu, and no network. Items
that need a missing package have that as their reason. The kit is made elsewhere, by `python -m
benchmarks.gpu.prepare`. Each stage is a process with a limit of its own, and its figures are whole after
every item: what is missing, or has failed, is made by the same command again, what has failed last. An item
in which its process ends costs no other one. The exit code is 0 where every stage could be run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.gpu.driver import Driver, DriverError, NoGpu, OtherGpu
from benchmarks.gpu.figures import Figures, Item, read
from benchmarks.gpu.kit import PLAN, Kit
from benchmarks.gpu.peers import ONNX_RUNTIME_WAYS, WAYS
from benchmarks.gpu.summary import summary, text_of

# A process ends with the first where its GPU cannot be used any more after an error: the next one goes on. It
# ends with the others where no process has a GPU, or has one that runs the kit's kernels.
_GPU_LOST, _NO_GPU, _OTHER_GPU = 3, 4, 5
_FINAL = {_NO_GPU: "there is no GPU", _OTHER_GPU: "the kit is for another GPU"}
_MOST_RESTARTS = 30
_LEAST_S = 5.0

Items = Iterator[tuple[str, Callable[[], Item]]]


@dataclass(frozen=True)
class Stage:
    """A part of the benchmark.

    Attributes:
        name: of the stage and its figures.
        limit_s: seconds that it takes at most.
    """

    name: str
    limit_s: float


# What counts most comes first. Compiling by torch takes as long as it may.
STAGES = (
    Stage("machine", 20.0),
    Stage("layers", 60.0),
    Stage("layer_peers", 60.0),
    Stage("models", 75.0),
    Stage("programs", 90.0),
    Stage("model_peers", 170.0),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; one stage alone is what the others are processes of."""
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.gpu", description=__doc__)
    parser.add_argument("kit", type=Path, help="folder that benchmarks.gpu.prepare wrote")
    parser.add_argument("results", type=Path, help="folder for the figures")
    parser.add_argument("--seconds", type=float, default=470.0, help="time for everything")
    names = [stage.name for stage in STAGES]
    parser.add_argument("--stages", nargs="+", choices=names, help="only these, without their own limits")
    parser.add_argument("--stage", choices=names, help=argparse.SUPPRESS)
    parser.add_argument("--run", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not (options.kit / PLAN).is_file():
        parser.error(
            f"{options.kit} is no kit: it has no {PLAN}; make one by python -m benchmarks.gpu.prepare"
        )
    options.results.mkdir(parents=True, exist_ok=True)
    if options.stage:
        return _stage(options.stage, Kit(options.kit), options.results, options.run)
    stages: Sequence[Stage] = STAGES
    if options.stages:
        stages = tuple(Stage(one.name, options.seconds) for one in STAGES if one.name in options.stages)
    whole = _all_stages(stages, options.kit, options.results, time.monotonic() + options.seconds)
    found = summary(Kit(options.kit), options.results)
    (options.results / "summary.json").write_text(json.dumps(found, indent=1))
    sys.stdout.write(text_of(found))
    return 0 if whole else 1


def _all_stages(stages: Sequence[Stage], kit: Path, results: Path, end: float) -> bool:
    """Run some stages until the end; whether each could be run."""
    run, whole = uuid.uuid4().hex, True
    for stage in stages:
        limit = min(stage.limit_s, end - time.monotonic())
        if limit < _LEAST_S:
            sys.stdout.write(f"{stage.name}: no time left\n")
            whole = False
            continue
        reason = _run_stage(stage, kit, results, run, time.monotonic() + limit)
        sys.stdout.write(f"{stage.name}: {reason}, {len(read(results, stage.name))} items\n")
        sys.stdout.flush()
        if reason in _FINAL.values():
            return False
        whole = whole and reason in ("done", "time is up")
    return whole


def _run_stage(stage: Stage, kit: Path, results: Path, run: str, end: float) -> str:
    """Run a stage, again where the GPU is lost; how it ended."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.gpu",
        str(kit),
        str(results),
        "--stage",
        stage.name,
        "--run",
        run,
    ]

    def interrupted(reason: str) -> bool:
        return Figures(results, stage.name, run).interrupted(reason)

    interrupted("the benchmark ended in it")
    for _ in range(_MOST_RESTARTS):
        left = end - time.monotonic()
        if left <= 0:
            return "time is up"
        code = _ended(command, left)
        if code is None:
            interrupted("the time of its stage was up")
            return "time is up"
        if code in _FINAL:
            return _FINAL[code]
        # A library's crash ends one item.
        if not interrupted(f"its process ended with {code}") and code != _GPU_LOST:
            return "done" if code == 0 else f"ended with {code}"
    return "it was started too often"


def _ended(command: Sequence[str], seconds: float) -> int | None:
    """The exit code of a process, None where it had to be ended after so many seconds.

    What it started ends with it: a compiler's helpers would go on and slow down what is measured next.
    """
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            # Also where the benchmark is interrupted: its own signals do not reach another session.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _stage(name: str, kit: Kit, results: Path, run: str) -> int:
    """All items of a stage, in this process; what failed in an earlier run comes last."""
    figures = Figures(results, name, run)
    with tempfile.TemporaryDirectory(prefix="edgetlm-gpu-") as folder:
        try:
            items = sorted(_items(name, kit, Path(folder)), key=lambda one: figures.failed(one[0]))
        except NoGpu as error:
            sys.stderr.write(f"{error}\n")
            return _OTHER_GPU if isinstance(error, OtherGpu) else _NO_GPU
        for item, make in items:
            if not figures.take(item, make) and not _usable(name):
                return _GPU_LOST
    return 0


def _usable(stage: str) -> bool:
    """Whether the process can go on after an error: a fault of a kernel ends the context, for torch too."""
    if stage == "models":
        return True  # Kernels run in processes of their own.
    try:
        Driver().wait()
    except NoGpu:
        return True  # Another process would find none either.
    except DriverError:
        return False
    return True


def _items(stage: str, kit: Kit, folder: Path) -> Items:
    if stage in ("layer_peers", "model_peers"):
        yield from _peers(stage, kit, folder)
        return
    from benchmarks.gpu import kernels

    driver = Driver()
    _can_run(driver, kit)
    compared = [name for name, task in kit.tasks.items() if task["sizes"] is not None]
    if stage == "machine":
        yield "gpu", driver.described
        yield "settings", _settings
        yield "context", partial(_context, driver)
        for name in kit.plan["peaks"]:
            yield name, partial(kernels.peak, driver, kit, name)
    elif stage == "layers":
        for name in compared:
            yield name, partial(kernels.first_program, driver, kit, name)
    elif stage == "programs":
        for name in kit.tasks:
            yield name, partial(kernels.all_programs, driver, kit, name)
    else:
        from benchmarks.gpu.models import run_model

        for name in kit.models:
            yield name, partial(run_model, driver, kit, name, folder / name)


def _can_run(driver: Driver, kit: Kit) -> None:
    """Raise OtherGpu where a GPU does not run the kit's kernels: machine code is for one major version."""
    found, wanted = driver.described()["capability"], kit.capability
    if wanted is None:
        return  # A kit from before plans named it.
    (major, minor), (own_major, own_minor) = (map(int, one.split(".")) for one in (wanted, found))
    if major != own_major or minor > own_minor:
        raise OtherGpu(
            f"this GPU has compute capability {found}, and the kit's kernels are for {wanted}: measure on "
            "such a GPU, or make a kit for this one by benchmarks.gpu.prepare"
        )


def _peers(stage: str, kit: Kit, folder: Path) -> Items:
    if stage == "layer_peers":
        for name in (name for name, task in kit.tasks.items() if task["sizes"] is not None):
            yield name, partial(_torch_layer, kit, name)
        return
    for way in WAYS:
        for name in kit.models:
            yield f"{name} {way}", partial(_peer_model, kit, name, way, folder / f"{name} {way}")


# Libraries are imported where an item needs them: one that is missing is the error of its items alone.


def _torch_layer(kit: Kit, name: str) -> Item:
    from benchmarks.gpu.peers import torch_peers

    return torch_peers.layer(kit, name)


def _peer_model(kit: Kit, name: str, way: str, folder: Path) -> Item:
    if way in ONNX_RUNTIME_WAYS:
        from benchmarks.gpu.peers import onnxruntime_peers

        return onnxruntime_peers.model(kit, name, way == "onnxruntime-graph", folder)
    from benchmarks.gpu.peers import torch_peers

    return torch_peers.model(name, way)


def _context(driver: Driver) -> Item:
    """Memory of the GPU that a process takes before it has loaded anything."""
    source = "from benchmarks.gpu.driver import Driver; print(Driver().free_bytes())"
    before = driver.free_bytes()
    command = [sys.executable, "-c", source]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=15)
    return {"bytes": before - int(done.stdout)}


def _settings() -> Item:
    """What NVIDIA's tool says of clocks and limits of power."""
    fields = "name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit,persistence_mode"
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=15)
    return dict(zip(fields.split(","), done.stdout.strip().split(", "), strict=False))


if __name__ == "__main__":
    sys.exit(main())
