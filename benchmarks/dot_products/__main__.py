"""Products of bytes beside ONNX Runtime's, interleaved on the local processor, one thread.

    python -m benchmarks.dot_products [--only NAME,...] [--rounds N] [--json FILE]

`ours` is the program of Gensor's best estimate, nothing measured; `library` is ONNX Runtime's QLinearMatMul
or QLinearConv, images with channels last, so that neither moves them, with its overhead of a call; `plain` is
ours in fp32. Times are minima over the rounds, ratios of speed are medians over them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import tvm

from benchmarks.dot_products.models import OPERATORS, Operator, integer_model, plain_model
from benchmarks.result_file import add_json_option, heading, write_result
from device_agent.board.machine import Machine
from host.build import build_kernel_library, target_for
from host.gensor import Gensor
from host.importers import load_here as load
from host.lowering import lower
from host.model import DeviceProfile
from host.schedules import scheduled_function, space_for
from targets import MachineDescription, board_for

SCHEMA = "edgetlm.dot_products/1"
_SAMPLE_S = 0.02


def local_profile() -> DeviceProfile:
    """This machine with one thread."""
    description = MachineDescription(**Machine().describe())
    board = board_for(description)
    assert board is not None
    return DeviceProfile("local", board, board.hardware, 1)


def ours(path: Path, profile: DeviceProfile, folder: Path) -> tuple[Callable[[int], float], str]:
    """Seconds of so many runs of the kernel with Gensor's first program, and the program's rule."""
    lowered = lower(load(path), profile.board)
    task = max(lowered.tasks, key=lambda found: len(found.function.params))
    space = space_for(task, profile.hardware)
    (candidate,) = Gensor().propose(space, profile, (), 1, seed=0)
    library = folder / f"{path.stem}-{len(list(folder.iterdir()))}.so"
    function = scheduled_function(space.apply(candidate))
    build_kernel_library({"kernel": function}, library, target_for(profile.board))
    module = tvm.runtime.load_module(str(library))
    draw, arguments = np.random.default_rng(1), []
    for parameter in task.function.params:
        shape, dtype = tuple(int(extent) for extent in parameter.shape), str(parameter.dtype)
        values = draw.integers(0, 100, shape) if "int" in dtype else draw.normal(size=shape)
        arguments.append(tvm.runtime.tensor(values.astype(dtype)))
    kernel = module["kernel"]

    def run(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            kernel(*arguments)
        return time.perf_counter() - start

    return run, candidate.rule


def library(path: Path) -> Callable[[int], float]:
    """Seconds of so many runs of ONNX Runtime, its input and output bound."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    binding = session.io_binding()
    shape = session.get_inputs()[0].shape
    binding.bind_cpu_input("x", np.random.default_rng(1).integers(0, 256, shape).astype("uint8"))
    binding.bind_output("y")

    def run(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            session.run_with_iobinding(binding)
        return time.perf_counter() - start

    return run


def measure(operator: Operator, profile: DeviceProfile, rounds: int) -> dict[str, object]:
    """Microseconds of every contender, and ratios of speed."""
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as name:
        folder = Path(name)
        files = [folder / f"{kind}.onnx" for kind in ("ours", "library", "plain")]
        integer_model(operator, files[0], library=False)
        integer_model(operator, files[1], library=True)
        plain_model(operator, files[2])
        integers, rule = ours(files[0], profile, folder)
        fp32, plain_rule = ours(files[2], profile, folder)
        runs = {"ours": integers, "library": library(files[1]), "plain": fp32}
        counts = {key: max(1, int(_SAMPLE_S / max(run(3) / 3, 1e-7))) for key, run in runs.items()}
        times: dict[str, list[float]] = {key: [] for key in runs}
        for _ in range(rounds):
            for key, run in runs.items():
                times[key].append(run(counts[key]) / counts[key])
    best = {key: min(samples) for key, samples in times.items()}
    ratios = {
        key: float(np.median([b / a for a, b in zip(times["ours"], times[key], strict=True)]))
        for key in ("library", "plain")
    }
    return {
        "rule": rule,
        "plain_rule": plain_rule,
        "us": {key: 1e6 * seconds for key, seconds in best.items()},
        "multiply_adds_per_s": operator.multiply_adds / best["ours"],
        "ours/library": ratios["library"],
        "ours/plain": ratios["plain"],
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.dot_products", description=__doc__)
    parser.add_argument("--only", default="", help="names of operators, separated by commas")
    parser.add_argument("--rounds", type=int, default=15)
    add_json_option(parser)
    options = parser.parse_args()
    wanted = [name for name in options.only.split(",") if name]
    about = heading("benchmarks.dot_products", SCHEMA)
    profile, found = local_profile(), {}
    for operator in OPERATORS:
        if wanted and operator.name not in wanted:
            continue
        row = found[operator.name] = measure(operator, profile, options.rounds)
        print(operator.name, json.dumps(row), flush=True)
    write_result(options.json, {**about, "operators": found})


if __name__ == "__main__":
    main()
