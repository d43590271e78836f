"""Makes the kit whose programs `benchmarks.gpu` times: `python -m benchmarks.gpu_written.prepare KIT`.

    python -m benchmarks.gpu_written.prepare KIT --files ONNX_FOLDER [--model FOLDER] [--tasks 40]

The tasks are of networks that are held out of the language model's training, on a PC with a GPU: mostly in
half precision, and some products in single precision, whose spaces are the largest. Each arm orders its
programs without measuring (`benchmarks.learning.arms`); the kit has its first ten for the first seed, and its
first one for the others:

    gensor_t              Gensor's, by the estimate T
    random                uniformly random ones, as they are drawn; the first one alone
    random32_t            the best by T of 32 uniformly random ones
    infilled_random32_t   the best by T of 24 of them and of 8 near the best of these by T
    tlm_likelihood        the likeliest of 32 programs of the language model
    tlm32_t               the best by T of 32 programs that the model writes as in a deployment
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.gpu.prepare import KitWriter, gpu_profile_of
from benchmarks.gpu_written.tasks import WithheldTask, chosen_tasks, withheld_tasks
from benchmarks.learning.arms import programs_of_arms
from benchmarks.modelled_boards.draws import Program
from benchmarks.result_file import heading
from host.errors import EdgeError, UserError
from host.model import Candidate, DeviceProfile
from host.schedules import DesignSpace
from host.tlm.model.checkpoints import SHIPPED
from host.tlm.proposer import Tlm

SCHEMA = "edgetlm.gpu_kit/1"
# Held out of the language model's training (research/pretraining/held_out.json).
NETWORKS = ("resnet50", "mobilenetv2", "bert-base", "gpt2", "dcgan", "resnext50")
# Programs that an arm measures.
MEASURED = 10
_RANDOM = "random"


def arms_by_seed(
    space: DesignSpace, profile: DeviceProfile, model: Tlm, seeds: int
) -> Mapping[str, Sequence[Sequence[Candidate]]]:
    """The first programs of each arm, by seed: ten for the first seed, one for the others.

    Raises:
        ScheduleError: the space has no legal program.
    """
    found: dict[str, list[list[Candidate]]] = {}
    for seed in range(seeds):
        for arm, programs in programs_of_arms(space, profile, None, model, seed).items():
            first = programs[: 1 if seed or arm == _RANDOM else MEASURED]
            found.setdefault(arm, []).append([_candidate(space, arm, values) for values in first])
    return found


def _candidate(space: DesignSpace, arm: str, values: Program) -> Candidate:
    return space.candidate(values, arm, space.estimate_s(values))


def add(writer: KitWriter, task: WithheldTask, profile: DeviceProfile, model: Tlm, seeds: int) -> int:
    """Add a task to a kit; how many programs it has there.

    Raises:
        EdgeError: it has no program, or none that compiles.
    """
    arms = arms_by_seed(task.space, profile, model, seeds)
    about = {"network": task.network, "kind": task.kind, "programs": task.programs}
    return writer.add_arms(task.name, task.space, arms, about)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line.

    Raises:
        UserError: the networks have no such task.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_written.prepare", description=__doc__)
    parser.add_argument("kit", type=Path, help="folder to write")
    parser.add_argument("--files", type=Path, required=True, help="folder of the networks' ONNX files")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), help="names of the zoo")
    parser.add_argument("--model", type=Path, default=SHIPPED, help="folder of the language model")
    parser.add_argument("--tasks", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=math.inf, help="leave out the tasks after that")
    options = parser.parse_args(arguments)
    about = heading("benchmarks.gpu_written.prepare", SCHEMA, arguments)
    profile = gpu_profile_of()
    every = [
        task
        for network in options.networks
        for task in withheld_tasks(options.files / f"{network}.onnx", network, profile)
    ]
    tasks = chosen_tasks(every, options.tasks)
    if not tasks:
        raise UserError("the networks have no withheld task with a choice: name others with --networks")
    writer = KitWriter(options.kit, profile, 0)
    model, whole, started = Tlm(options.model), 0, time.monotonic()
    for number, task in enumerate(tasks, start=1):
        begin = time.monotonic()
        if begin - started > options.seconds:
            sys.stdout.write(f"the time is over: {len(tasks) - number + 1} tasks are left out\n")
            break
        try:
            count = add(writer, task, profile, model, options.seeds)
        except EdgeError as error:
            sys.stdout.write(f"{task.name} is left out: {error}\n")
            continue
        whole += count
        seconds = time.monotonic() - begin
        line = f"{number}/{len(tasks)} {task.name}: {count} of about {task.programs:.0f} programs"
        sys.stdout.write(f"{line}, {seconds:.0f} s\n")
        sys.stdout.flush()
    writer.write(None, about)
    size = sum(file.stat().st_size for file in options.kit.iterdir())
    sys.stdout.write(f"{options.kit}: {whole} programs, {size / 1e6:.1f} MB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
