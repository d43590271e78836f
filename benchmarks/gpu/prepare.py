"""Makes the kit that `python3 -m benchmarks.gpu` measures: `python -m benchmarks.gpu.prepare KIT`.

Everything is compiled here: programs of layers that are compared with libraries, random programs of the tasks
of models, bundles of whole models, loops that use tensor cores alone, and the native executor. The weights of
models are rounded to three values for each tensor, so that bundles are small when they are packed; times do
not depend on them.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import random
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tvm
from onnx import numpy_helper
from onnxruntime.transformers.float16 import convert_float_to_float16

from benchmarks.gpu.kit import CUBINS, EXECUTOR, MODEL_SUFFIX, ONNX_SUFFIX, PLAN
from benchmarks.gpu.launches import launches_of, shared_by_launches
from benchmarks.gpu.layers import Layer, all_layers
from benchmarks.gpu.peak import Peak, peak_programs
from benchmarks.result_file import heading
from host.build import compile_cuda, cuda_major, target_for
from host.build.cuda.library import CudaKernel
from host.build.cuda.nvrtc import Nvrtc
from host.compile.bundle_builder import BundleBuilder
from host.compile.model_compiler import ModelCompiler
from host.compile.model_file import read_model
from host.errors import BuildError, EdgeError, ScheduleError
from host.execution.cores import usable_cores
from host.gensor import Gensor
from host.importers import load
from host.lowering import lower
from host.model import Candidate, DeviceProfile, Task
from host.options import CompileOptions
from host.options.numeric_types import half_of
from host.payload.native import native_executor
from host.progress import Silence, StageClock
from host.schedules import DesignSpace, scheduled_function, space_for
from research.models.export import export
from targets import board_for, declared
from targets.nvidia import H100
from tests.cuda_emulator.source import parameter_names
from tests.unit.schedules.functions import task as task_of

SCHEMA = "edgetlm.gpu_kit/1"
MODELS = ("resnet50", "mobilenetv2", "yolo-nano", "deit-small", "bert-base")
# Random programs of which one is taken as one of the best.
_OF_WHICH = 16
# Rows of a weight that differ from each other, so that a kit stays small: the others repeat them.
_DIFFERENT_ROWS = 256
# Tensors of fewer elements keep their values.
_FEW = 4096
# A weight within this share of the standard deviation becomes zero.
_ZERO_SHARE = 0.6


@dataclass(frozen=True)
class Program:
    """One program of a task: how it came about, and its kernel."""

    candidate: Candidate
    kernel: CudaKernel
    function: tvm.tirx.PrimFunc


def gpu_profile_of(gpu: Any = H100, cuda: str = "13.0") -> DeviceProfile:
    """A PC with a GPU that need not be here."""
    found = board_for(declared()["x86_64-v3"])
    assert found is not None
    board = replace(found, gpu=gpu).on_gpu()
    return DeviceProfile("gpu", board, board.hardware, 1, {"cuda": cuda})


def candidates(space: DesignSpace, profile: DeviceProfile, count: int) -> list[Candidate]:
    """Gensor's program, then random ones: half as they are drawn, half the best of many by estimate."""
    found = list(Gensor().propose(space, profile, [], 1, seed=0))
    generator, seen = random.Random(space.task.workload_hash), {found[0].decisions}
    drawn = _drawn(space, generator, seen, -(-count // 2))
    better = sorted(_drawn(space, generator, seen, _OF_WHICH * (count // 2)), key=lambda one: one.estimate_s)
    return [*found, *drawn, *better[: count // 2]]


def _drawn(space: DesignSpace, generator: random.Random, seen: set[Any], count: int) -> list[Candidate]:
    """Random programs that were not drawn before, at most so many."""
    found: list[Candidate] = []
    for _ in range(count):
        try:
            values = space.sample(generator)
        except ScheduleError:
            break
        drawn = space.candidate(values, "random", space.estimate_s(values))
        if drawn.decisions not in seen:
            seen.add(drawn.decisions)
            found.append(drawn)
    return found


class KitWriter:
    """Collects what a kit has; `write` ends it.

    Args:
        folder: of the kit, empty or not there.
        profile: of a machine with the GPU.
        count: random programs of each task.
    """

    def __init__(self, folder: Path, profile: DeviceProfile, count: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._profile, self._count = folder, profile, count
        self._target = target_for(profile.board)
        self._major = cuda_major(profile.software)
        self._archive = zipfile.ZipFile(folder / CUBINS, "w", zipfile.ZIP_DEFLATED)
        self._peaks: dict[str, Any] = {}
        self._tasks: dict[str, Any] = {}
        self._models: list[str] = []

    def add_peaks(self, peaks: Iterable[Peak]) -> None:
        """Loops in registers."""
        gpu = self._profile.board.gpu
        assert gpu is not None
        for peak in peaks:
            cubin = Nvrtc(self._major).compile(peak.source, gpu.arch)
            launch = {"entry": peak.entry, "blocks": (peak.blocks, 1, 1), "threads": (peak.threads, 1, 1)}
            self._peaks[peak.name] = {
                "cubin": self._kept(cubin.content),
                "launches": [{**launch, "arguments": [0]}],
                "operations": peak.operations,
                "result_bytes": peak.result_bytes,
            }

    def add_layer(self, layer: Layer) -> None:
        """A layer that a library is compared with.

        Raises:
            EdgeError: none of its programs compiles.
        """
        self._add(layer.name, task_of(layer.function, "layer"), layer.described(), 2 * layer.multiply_adds)

    def add_task(self, name: str, task: Task) -> None:
        """A task of a model; one for which no rule has programs is left out."""
        try:
            self._add(name, task, None, task.flops)
        except EdgeError as error:
            sys.stdout.write(f"{name} is left out: {error}\n")

    def add_model(self, name: str, path: Path) -> None:
        """The bundle of a model in halves, and its file in halves as ONNX Runtime's tool makes it.

        Raises:
            EdgeError: it does not compile.
        """
        options = CompileOptions(model=path, dtype="fp16")
        clock = StageClock(Silence())
        with tempfile.TemporaryDirectory(prefix="edgetlm-kit-") as folder:
            builder = BundleBuilder(ModelCompiler(options, self._profile, Path(folder), clock))
            builder.compile(read_model(options, clock))
            with tarfile.open(self._folder / f"{name}{MODEL_SUFFIX}", "w:xz") as archive:
                for file in sorted(builder.directory("tvm").iterdir()):
                    archive.add(file, file.name)
        halves = convert_float_to_float16(onnx.load(path), keep_io_types=True)
        packed = lzma.compress(halves.SerializeToString())
        (self._folder / f"{name}{ONNX_SUFFIX}").write_bytes(packed)
        self._models.append(name)

    def add_arms(
        self, name: str, space: DesignSpace, arms: Mapping[str, Sequence[Sequence[Candidate]]], about: Any
    ) -> int:
        """A task with the programs of some arms, each of which is compiled once.

        Args:
            name: of the task.
            space: of its programs.
            arms: by name, for each seed the programs in the order in which the arm takes them. The plan has
                their numbers, without those that do not compile.
            about: what else the plan keeps of the task.

        Returns:
            How many programs the kit has of the task.

        Raises:
            BuildError: none of the programs compiles.
        """
        every = {one.decisions: one for lists in arms.values() for chosen in lists for one in chosen}
        programs = [program for program in self._compiled(space, list(every.values())) if program is not None]
        if not programs:
            raise BuildError(f"{name}: none of {len(every)} programs compiles")
        numbers = {program.candidate.decisions: number for number, program in enumerate(programs)}
        self._describe(name, space.task, programs, None, space.task.flops)
        self._tasks[name]["about"] = about
        self._tasks[name]["arms"] = {
            arm: [[numbers[one.decisions] for one in chosen if one.decisions in numbers] for chosen in lists]
            for arm, lists in arms.items()
        }
        return len(programs)

    def write(self, executor: Path | None, about: Mapping[str, Any]) -> None:
        """End the kit.

        Args:
            executor: the native executor for the machine; None for a kit without models.
            about: heading of the kit.
        """
        self._archive.close()
        if executor is not None:
            shutil.copy(executor, self._folder / EXECUTOR)
        gpu = self._profile.board.gpu
        assert gpu is not None
        number = gpu.arch.removeprefix("sm_")
        plan = {
            "heading": dict(about),
            "capability": f"{number[:-1]}.{number[-1]}",
            "peaks": self._peaks,
            "tasks": self._tasks,
            "models": self._models,
        }
        (self._folder / PLAN).write_text(json.dumps(plan))

    def _add(self, name: str, task: Task, sizes: Mapping[str, Any] | None, operations: float) -> None:
        space = space_for(task, self._profile.hardware, self._profile.threads)
        made = self._compiled(space, candidates(space, self._profile, self._count))
        if made[0] is None:
            raise BuildError(f"{name}: Gensor's program does not compile")
        self._describe(name, task, [one for one in made if one is not None], sizes, operations)

    def _compiled(self, space: DesignSpace, chosen: Sequence[Candidate]) -> list[Program | None]:
        with ThreadPoolExecutor(usable_cores()) as pool:
            return list(pool.map(lambda one: self._program(space, one), chosen))

    def _describe(
        self,
        name: str,
        task: Task,
        programs: Sequence[Program],
        sizes: Mapping[str, Any] | None,
        operations: float,
    ) -> None:
        self._tasks[name] = {
            "task": task.workload_hash,
            "arguments": [
                [[int(extent) for extent in buffer.shape], str(buffer.dtype)]
                for buffer in task.function.params
            ],
            "sizes": sizes,
            "operations": operations,
            "programs": [self._described(program) for program in programs],
        }

    def _program(self, space: DesignSpace, candidate: Candidate) -> Program | None:
        """A compiled candidate; None where it does not compile."""
        try:
            function = scheduled_function(space.apply(candidate))
            kernel = compile_cuda(function, "kernel", self._target, None, self._major)
        except EdgeError:
            return None
        return Program(candidate, kernel, function)

    def _described(self, program: Program) -> dict[str, Any]:
        kernel = program.kernel
        between = shared_by_launches(program.function)
        order = [str(one.name) for one in (*program.function.params, *between)]
        parameters = parameter_names(kernel.module.inspect_source("cuda"))
        launches = []
        for number, launch in enumerate(launches_of(program.function)):
            entry = f"{kernel.name}_kernel" + (f"_{number}" if number else "")
            arguments = [order.index(name.removesuffix("_ptr")) for name in parameters[entry]]
            sizes = {
                "blocks": launch.blocks,
                "threads": launch.threads,
                "shared_bytes": launch.shared_bytes,
            }
            launches.append({"entry": entry, **sizes, "arguments": arguments})
        return {
            "cubin": self._kept(kernel.cubin.content),
            "launches": launches,
            "memory_bytes": [
                math.prod(map(int, one.shape)) * np.dtype(str(one.dtype)).itemsize for one in between
            ],
            "rule": program.candidate.rule,
            "version": program.candidate.space_version,
            "proposer": program.candidate.proposer,
            "decisions": dict(program.candidate.decisions),
            "estimate_s": program.candidate.estimate_s,
            "spill_bytes": sum(one.spill_store_bytes + one.spill_load_bytes for one in kernel.resources),
        }

    def _kept(self, cubin: bytes) -> str:
        name = f"{len(self._archive.namelist()):05}.cubin"
        self._archive.writestr(name, cubin)
        return name


def coarse(path: Path) -> None:
    """Round the weights of an ONNX file to three values for each tensor and repeat rows, in place.

    Vectors are rounded to powers of two: a scale of a norm that is multiplied into a weight later leaves few
    values then. Small tensors of more dimensions stay.
    """
    model = onnx.load(path)
    for one in model.graph.initializer:
        if one.data_type != onnx.TensorProto.FLOAT or not one.dims:
            continue
        values = numpy_helper.to_array(one)
        if len(one.dims) == 1:
            rounded = _powers(values)
        elif values.size >= _FEW:
            rounded = _three_values(values)
        else:
            continue
        one.CopyFrom(numpy_helper.from_array(rounded.astype("float32"), one.name))
    onnx.save(model, path)


def _three_values(values: np.ndarray) -> np.ndarray:
    deviation = float(values.std())
    values = np.resize(values[:_DIFFERENT_ROWS], values.shape)
    kept = np.where(np.abs(values) > _ZERO_SHARE * deviation, np.sign(values), 0.0)
    return kept * np.float16(1.2 * deviation)


def _powers(values: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.where(values == 0, 0.0, np.sign(values) * 2.0 ** np.round(np.log2(np.abs(values))))


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.prepare", description=__doc__)
    parser.add_argument("kit", type=Path, help="folder to write")
    parser.add_argument("--models", nargs="*", default=list(MODELS), help="names of the zoo")
    parser.add_argument("--programs", type=int, default=7, help="random programs of each task")
    options = parser.parse_args(arguments)
    about = heading("benchmarks.gpu.prepare", SCHEMA, arguments)
    profile = gpu_profile_of()
    writer = KitWriter(options.kit, profile, options.programs)
    writer.add_peaks(peak_programs(H100.multiprocessors))
    for layer in all_layers():
        writer.add_layer(layer)
    with tempfile.TemporaryDirectory(prefix="edgetlm-kit-") as folder:
        for name in options.models:
            path = export(name, Path(folder), "onnx")
            coarse(path)
            for task in lower(load(path), profile.board, half=half_of("fp16")).tasks:
                writer.add_task(f"{name} {task.name}", task)
            writer.add_model(name, path)
            sys.stdout.write(f"{name} is in the kit\n")
    writer.write(native_executor("x86_64"), about)
    size = sum(file.stat().st_size for file in options.kit.iterdir())
    sys.stdout.write(f"{options.kit}: {size / 1e6:.1f} MB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
