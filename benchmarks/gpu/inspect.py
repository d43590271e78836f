"""What a model's kernels for a GPU are made of: `python -m benchmarks.gpu.inspect MODEL --target T --json F`.

Nothing runs on a GPU. Instructions are those of the machine code; spilled registers are what the assembler
says. The products of tensor cores and the conflicts in shared memory are counted in one block of each kernel,
which is emulated on this machine, and multiplied by the blocks of its launch. A kernel's multiply-adds count
as computed by tensor cores as far as its blocks execute products for them and the machine code has these.

Of several models or targets the file has the sums of each pair, written as soon as they are known. What is in
the file already is not done again: the same command goes on where it was stopped. Rows of older programs are
named, and are made again once they are taken out of the file.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tvm

from benchmarks.e2e.quantised_file import quantised_file
from benchmarks.gpu.launches import first_block, launches_of
from benchmarks.gpu.machine_code import multiply_adds, opcodes_of, widths
from benchmarks.gpu.prepare import gpu_profile_of
from benchmarks.result_file import add_json_option, heading, read_result, write_result
from host.build import cuda_major
from host.build.cuda.default_schedule import default_schedule_gpu
from host.build.cuda.library import CudaKernel
from host.build.cuda.model import build_cuda_kernels
from host.build.model import lower_to_executable
from host.compile.device_profile import target_profile
from host.compile.model_compiler import ModelCompiler, PlannedModel
from host.compile.model_file import read_model
from host.compile.processor import gpu_profile
from host.compile.static_model import scheduled_kernels
from host.errors import EdgeError, UserError
from host.model import DeviceProfile
from host.options import CompileOptions
from host.progress import Silence, StageClock
from host.schedules.families import rule_versions
from research.models.export import export
from research.models.zoo import ZOO
from sdk.text import data_without_host_paths

SCHEMA = "edgetlm.gpu_inspect/1"
SCHEMA_OF_SEVERAL = "edgetlm.gpu_inspect_several/1"
# The GPU that programs are measured on, in a PC; no board that models are deployed to.
SERVER = "h100"
# How lowering names stages that convolve each channel by itself. There is nothing for tensor cores in them:
# no two results share an operand.
_BY_CHANNEL = "depthwise_conv"
# Of those whose machine code the disassembler of CUDA 13 reads.
_FIRST_ARCH = 75


@dataclass(frozen=True, eq=False)
class Built:
    """A model's kernels.

    Attributes:
        planned: the model with its programs.
        kernels: compiled, by name.
        functions: what they were compiled from, scheduled.
        compile_s: wall time of lowering, proposing and compiling, with nothing cached.
        compile_processor_s: processor time of that, helpers included. It hardly depends on what else runs.
    """

    planned: PlannedModel
    kernels: Mapping[str, CudaKernel]
    functions: Mapping[str, tvm.tirx.PrimFunc]
    compile_s: float
    compile_processor_s: float


def _processor_s() -> float:
    """Processor time of this process, and of those that it started and that have ended."""
    return sum(os.times()[:4])


def built(path: Path, target: str, dtype: str, folder: Path) -> Built:
    """Compile a model for the GPU of a board that need not be there.

    Raises:
        EdgeError: the file is no model, the target has no GPU, or a kernel does not compile.
    """
    options = CompileOptions(model=path, dtype=dtype, processor="gpu")
    clock = StageClock(Silence())
    model = read_model(options, clock)
    start, start_processor = time.monotonic(), _processor_s()
    profile = profile_of(target)
    planned = ModelCompiler(options, profile, folder, clock).plan(model)
    scheduled, _ = scheduled_kernels(planned.lowered.tasks, planned.plan)
    functions = lower_to_executable(planned.lowered.module, planned.lowered.target).functions
    kernels, refused = build_cuda_kernels(
        functions, scheduled, planned.lowered.target, None, None, None, cuda_major(profile.software)
    )
    compile_s, compile_processor_s = time.monotonic() - start, _processor_s() - start_processor
    used = {
        name: scheduled[name]
        if name in scheduled and name not in refused
        else default_schedule_gpu(functions[name], name)
        for name in functions
    }
    return Built(planned, kernels, used, compile_s, compile_processor_s)


def profile_of(target: str) -> DeviceProfile:
    """The GPU of a board, or that of `SERVER`."""
    return gpu_profile_of() if target == SERVER else gpu_profile(target_profile(target))


def kernel_entry(
    kernel: CudaKernel, function: tvm.tirx.PrimFunc, wanted: int, folder: Path, disassembled: bool = True
) -> dict[str, Any]:
    """The figures of one function, one call.

    Args:
        kernel: compiled.
        function: scheduled.
        wanted: multiply-adds of its products and convolutions.
        folder: for emulation.
        disassembled: whether the machine code is read; without it no product counts as one of tensor cores.
    """
    source = kernel.module.inspect_source("cuda")
    opcodes = opcodes_of(kernel.cubin.content) if disassembled else {}
    resources = {entry.kernel: entry for entry in kernel.resources}
    executed = conflicts = accesses = not_counted = 0
    for number, launch in enumerate(launches_of(function)):
        entry = f"{kernel.name}_kernel" + (f"_{number}" if number else "")
        if "__shared__" not in source and "mma.sync" not in source:
            continue
        counters = first_block(function, source, entry, launch, folder)
        executed += counters.multiply_adds * launch.count
        found = counters.load_conflicts + counters.copy_conflicts + counters.access_conflicts
        conflicts += found * launch.count
        accesses += (counters.accesses + counters.matrix_loads) * launch.count
        not_counted += counters.not_counted * launch.count
    has_products = any(multiply_adds(one)["tensor"] for one in opcodes.values())
    return {
        "multiply_adds": wanted,
        "tensor_core_multiply_adds": min(executed, wanted) if has_products else 0,
        "executed_by_tensor_cores": executed,
        "instructions": dict(sum(opcodes.values(), start=Counter())),
        "access_bytes": widths(sum(opcodes.values(), start=Counter())),
        "spill_bytes": sum(one.spill_store_bytes + one.spill_load_bytes for one in resources.values()),
        "stack_bytes": sum(one.stack_bytes for one in resources.values()),
        "registers": max(one.registers for one in resources.values()),
        "shared_bytes": max(one.shared_bytes for one in resources.values()),
        "bank_conflicts": conflicts,
        "shared_accesses": accesses,
        "accesses_not_counted": not_counted,
        "launches": [asdict(launch) for launch in launches_of(function)],
    }


def inspected(model: Built, folder: Path) -> dict[str, Any]:
    """The figures of a model: sums over its calls, and each kernel."""
    entries: dict[str, dict[str, Any]] = {}
    plan = model.planned.plan
    arch = str(model.planned.lowered.target.attrs["arch"])
    disassembled = int(arch.removeprefix("sm_")) >= _FIRST_ARCH
    for task in model.planned.lowered.tasks:
        if task.name not in model.kernels:
            continue  # A view of a tensor: nothing is called.
        space, chosen = plan.spaces.get(task.workload_hash), plan.chosen.get(task.workload_hash)
        stages = space.workload.stages if space is not None else ()
        wanted = sum(stage.points for stage in stages if stage.kind == "contraction")
        by_channel = sum(stage.points for stage in stages if stage.name.startswith(_BY_CHANNEL))
        kernel, function = model.kernels[task.name], model.functions[task.name]
        entry = kernel_entry(kernel, function, wanted, folder, disassembled)
        about = {"calls": task.weight, "rule": chosen.rule if chosen else ""}
        entries[task.name] = {**about, "depthwise_multiply_adds": by_channel, **entry}

    def total(name: str) -> int:
        return sum(int(entry["calls"]) * int(entry[name]) for entry in entries.values())

    versions, rules = rule_versions(), sorted({entry["rule"] for entry in entries.values()} - {""})
    return {
        "arch": arch,
        "rules": {rule: versions[rule] for rule in rules},
        "disassembled": disassembled,
        "tensor_core_share": total("tensor_core_multiply_adds") / max(1, total("multiply_adds")),
        "depthwise_share": total("depthwise_multiply_adds") / max(1, total("multiply_adds")),
        "tensor_core_share_of_others": total("tensor_core_multiply_adds")
        / max(1, total("multiply_adds") - total("depthwise_multiply_adds")),
        "spill_bytes": total("spill_bytes"),
        "bank_conflicts": total("bank_conflicts"),
        "shared_accesses": total("shared_accesses"),
        "compile_s": model.compile_s,
        "compile_processor_s": model.compile_processor_s,
        "kernels": entries,
    }


def line_of(kernel: str, entry: Mapping[str, Any]) -> str:
    """One line for a kernel."""
    share = entry["tensor_core_multiply_adds"] / max(1, entry["multiply_adds"])
    return (
        f"{kernel:<44.44} {entry['rule']:<14} {entry['calls']:>3} x {entry['multiply_adds'] / 1e6:9.2f} M, "
        f"{share:4.0%} on tensor cores, {entry['registers']:>3} registers, {entry['spill_bytes']} bytes "
        f"spilled, {entry['bank_conflicts']} conflicts of {entry['shared_accesses']}\n"
    )


def entry_of(path: Path, target: str, dtype: str, folder: Path) -> dict[str, Any]:
    """The figures of a model file on a target; `int8` quantises the model first.

    Raises:
        EdgeError: the file is no model, the target has no GPU, or a kernel does not compile.
    """
    if dtype == "int8":
        path, dtype = quantised_file(path, folder / "quantised.onnx"), "fp32"
    return inspected(built(path, target, dtype, folder), folder)


def _model_file(model: str, folder: Path) -> Path:
    return export(model, folder, "onnx") if model in ZOO else Path(model)


def several(options: argparse.Namespace, about: Mapping[str, Any]) -> int:
    """Inspect each model for each target; returns how many of them did not compile."""
    output: Path | None = options.json
    rows: list[dict[str, Any]] = []
    if output is not None and output.exists():
        found = read_result(output)
        if found.schema != SCHEMA_OF_SEVERAL:
            raise UserError(f"{output} holds other figures; give --json another name")
        # Older files name the processor for all their rows.
        rows = [{"cpu": found.cpu, **row} for row in found.figures["entries"]]
    done = {(row["model"], row["target"], row["dtype"]) for row in rows}
    sys.stdout.write("".join(f"{line}\n" for line in older_programs(rows, rule_versions())))
    for model in options.model:
        # A written result has no paths of the machine.
        named = data_without_host_paths(model)
        left = [target for target in options.target if (named, target, options.dtype) not in done]
        if not left:
            continue
        with tempfile.TemporaryDirectory(prefix="edgetlm-inspect-") as name:
            folder = Path(name)
            path = _model_file(model, folder)
            for target in left:
                made_by = {"commit": about["commit"], "cpu": about["machine"]["cpu"]}
                rows.append(_row(path, named, target, options.dtype, folder) | made_by)
                write_result(output, {**about, "entries": rows})
                sys.stdout.write(f"{rows[-1]}\n")
                sys.stdout.flush()
    return sum("error" in row for row in rows)


def older_programs(rows: Sequence[Mapping[str, Any]], versions: Mapping[str, int]) -> list[str]:
    """A line for each row whose programs are of other rules than there are now; none of a row is of the same.

    A rule that a task would have now and had not then is not seen: that takes a plan of the model.

    Args:
        rows: of a file.
        versions: the present one of every rule.
    """
    lines = []
    for row in rows:
        about = f"{row['model']} on {row['target']}"
        if "error" in row:
            continue
        if "rules" not in row:
            commit = row.get("commit", "unknown")[:10]
            lines.append(f"{about}: of commit {commit}, which did not note versions of rules")
            continue
        other = [
            f"{rule} {version}, now {versions.get(rule, 'gone')}"
            for rule, version in row["rules"].items()
            if versions.get(rule) != version
        ]
        if other:
            lines.append(f"{about}: of older programs ({', '.join(other)})")
    return lines


def _row(path: Path, model: str, target: str, dtype: str, folder: Path) -> dict[str, Any]:
    """The sums of one model on one target, or why there are none."""
    settings = {"model": model, "target": target, "dtype": dtype}
    try:
        found = entry_of(path, target, dtype, folder)
    except EdgeError as error:
        return {**settings, "error": str(error)}
    kernels = found.pop("kernels")
    spilling = sorted(name for name, entry in kernels.items() if entry["spill_bytes"])
    return {**settings, **found, "kernels": len(kernels), "spilling": spilling}


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 0 if every model compiled."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.inspect", description=__doc__)
    parser.add_argument("model", nargs="+", help="a model file, or a model of the zoo: " + ", ".join(ZOO))
    parser.add_argument(
        "--target", nargs="+", default=["jetson_orin_nano"], help=f"boards with a GPU, or {SERVER}"
    )
    parser.add_argument(
        "--dtype",
        default="fp16",
        choices=("fp32", "fp16", "int8"),
        help="int8: of the zoo's models, as ONNX Runtime quantises them",
    )
    add_json_option(parser)
    options = parser.parse_args(arguments)
    alone = len(options.model) == len(options.target) == 1
    about = heading("benchmarks.gpu.inspect", SCHEMA if alone else SCHEMA_OF_SEVERAL, arguments)
    try:
        if not alone:
            return min(1, several(options, about))
        (model,), (target,) = options.model, options.target
        with tempfile.TemporaryDirectory(prefix="edgetlm-inspect-") as name:
            found = entry_of(_model_file(model, Path(name)), target, options.dtype, Path(name))
    except EdgeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    settings = {"model": model, "target": target, "dtype": options.dtype}
    write_result(options.json, {**about, **settings, **found})
    _report(found)
    return 0


def _report(found: Mapping[str, Any]) -> None:
    for kernel, entry in found["kernels"].items():
        sys.stdout.write(line_of(kernel, entry))
    sys.stdout.write(
        f"tensor cores {found['tensor_core_share']:.1%} of the multiply-adds "
        f"({found['tensor_core_share_of_others']:.1%} of those outside of depthwise convolutions), "
        f"{found['spill_bytes']} bytes spilled, {found['bank_conflicts']} bank conflicts, "
        f"compiled in {found['compile_s']:.1f} s\n"
    )


if __name__ == "__main__":
    sys.exit(main())
