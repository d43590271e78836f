r"""The language model on a board that it has learned a little of.

    python -m benchmarks.new_board --networks bert-base,mobilenetv2 --restrict avx2 \
        --baselines research/baselines/avx2 --measurements 18 --json F

First each task of the networks gets so many measurements of the shipped model's programs, and the model is
fine-tuned once on all of them, as `sdk tlm finetune` does. Then what came of it is evaluated as by
`sdk tlm evaluate`, with measurements of its own: nothing but the weights remembers the first ones. It is
evaluated whether or not the gate takes it; `finetuned` in the figures says which.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.result_file import add_json_option, heading, write_result
from host.compile.device_profile import profile_of
from host.errors import EdgeError, UserError
from host.model import DeviceProfile
from host.records import Record, RecordStore
from host.schedules import DesignSpace
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.checkpoints import SHIPPED
from host.tlm.training.finetune import CANDIDATE, FinetuneOptions, examples_of, finetune
from host.transport import Device, connect
from research.evaluation.bench import open_bench, restricted
from research.evaluation.evaluate import SCHEMA, EvaluateOptions, evaluate, load_baselines
from research.evaluation.learning import Learner, LearnOptions
from research.evaluation.proposals import Subject


def measured(
    device: Device, profile: DeviceProfile, options: EvaluateOptions, number: int, folder: Path
) -> tuple[list[Record], dict[str, DesignSpace]]:
    """So many programs of each task, measured, and the tasks' design spaces."""
    records: list[Record] = []
    spaces: dict[str, DesignSpace] = {}
    with open_bench(device, profile, folder, options.plan) as bench:
        for baseline in load_baselines(options):
            subjects = {entry.task.workload_hash: Subject(bench, entry.task) for entry in baseline.tasks}
            own = folder / baseline.network
            # Without a step of training between the measurements.
            with Learner(subjects, LearnOptions(options.checkpoint, own, steps=0), print) as learner:
                learner.run((number,))
            with RecordStore(own / "records.sqlite") as store:
                records += store
            spaces |= {key: one.space for key, one in subjects.items() if one.space is not None}
    return records, spaces


def run(
    device: Device, profile: DeviceProfile, options: EvaluateOptions, arguments: argparse.Namespace
) -> dict[str, Any]:
    """The figures of an evaluation with the fine-tuned model, and what it learned from."""
    with tempfile.TemporaryDirectory(prefix="edgetlm-new-board-") as scratch:
        folder = Path(scratch)
        records, spaces = measured(device, profile, options, arguments.measurements, folder)
        begin = time.perf_counter()
        how = FinetuneOptions(
            options.checkpoint, folder / "models", steps=arguments.steps, seed=options.seed, always=True
        )
        result = finetune(how, examples_of(records, spaces, Vocabulary()), lambda _: None)
        learned = {
            "programs": len(records),
            "measurements_a_task": arguments.measurements,
            "seconds": time.perf_counter() - begin,
            "steps": result.steps,
            "error_before": result.before,
            "error_after": result.after,
            "accepted": result.accepted,
            "forgotten": result.forgotten,
        }
        print(json.dumps(learned), flush=True)
        checkpoint = result.checkpoint if result.accepted else how.out / CANDIDATE
        tuned = replace(options, checkpoint=checkpoint)
        figures = evaluate(device, profile, tuned, lambda line: print(line, flush=True), lambda _: None)
    return {**figures, "finetuned": learned}


def main(words: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.new_board", description=__doc__)
    parser.add_argument("--networks", default="bert-base,mobilenetv2", help="names, comma-separated")
    parser.add_argument("--restrict", default="avx2", help="part of the processor that is used")
    parser.add_argument("--baselines", type=Path, default=Path("research") / "baselines" / "avx2")
    parser.add_argument("--measurements", type=int, default=18, help="of each task, to learn from")
    parser.add_argument("--steps", type=int, default=100, help="batches of the training")
    parser.add_argument("--budget", default="0,1,10,32", help="measurements a task, afterwards")
    add_json_option(parser)
    arguments = parser.parse_args(words)
    options = EvaluateOptions(
        baselines=arguments.baselines,
        checkpoint=SHIPPED,
        networks=tuple(arguments.networks.split(",")),
        budgets=tuple(int(number) for number in arguments.budget.split(",")),
        methods=("tlm",),
    )
    try:
        about = heading("benchmarks.new_board", SCHEMA, words)
        with connect("local") as device:
            profile = restricted(profile_of(device, threads=1), device.describe(), arguments.restrict)
            figures = run(device, profile, options, arguments)
    except EdgeError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, UserError) else 1
    write_result(arguments.json, figures | about)
    return 0


if __name__ == "__main__":
    sys.exit(main())
