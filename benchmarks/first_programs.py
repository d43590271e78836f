"""First programs of networks that taught nothing, end to end: `python -m benchmarks.first_programs`.

    python -m benchmarks.first_programs --data FILE [--models NAME...] [--threads N] [--json FILE]

FILE has programs that were measured inside of models (`python -m research.collection.in_model`). Each model
is compiled twice without measuring: as constructed, and with the programs that the learned estimate chooses
after it has seen FILE without this model and without its kernels. Then both bundles run in turn in one
process. `speed` is the time of the constructed model over that of the other one.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.e2e.__main__ import find_subject
from benchmarks.learned_estimate import bounded, observations_of
from benchmarks.result_file import add_json_option, heading, write_result
from benchmarks.trials.paired_runs import run_in_turn
from host.compile.device_profile import profile_of
from host.compile.tuning.first_programs import by_learned_estimate
from host.learned_estimate.observation import Observation
from host.options import DeployOptions
from host.progress import Silence, StageClock
from host.statistics import paired_ratio
from host.transport import connect
from research.collection.constructed_model import ConstructedModel
from research.collection.dataset import read_programs

SCHEMA = "edgetlm.first_programs/1"
_MODELS = ("mobilenetv2", "efficientnet-b0", "swin-tiny", "vit-tiny", "bert-tiny", "resnet50", "aspp")


def figures_of(model: ConstructedModel, known: Sequence[Observation], folder: Path) -> dict[str, Any]:
    """What the measurements of other models do for one."""
    constructed = model.plan
    others = [
        one for one in known if one.model != model.lowered.name and one.program.task not in constructed.spaces
    ]
    chosen, rules = by_learned_estimate(
        constructed, tuple(constructed.chosen), others, model.profile, 0, StageClock(Silence())
    )
    before, after = constructed.chosen, chosen.chosen
    figures = {
        "taught_by": len(others),
        "rules": sorted(rules),
        "kernels": len(before),
        "changed": sum(before[key].decisions != after[key].decisions for key in before),
    }
    if not rules:
        return {**figures, "speed": {"value": 1.0, "low": None, "high": None}}
    bundles = [model.bundle(constructed, folder / "constructed"), model.bundle(chosen, folder / "learned")]
    found = paired_ratio(*run_in_turn(bundles, model.profile.threads))
    return {**figures, "speed": {"value": found.value, "low": found.low, "high": found.high}}


def main(arguments: Sequence[str] | None = None) -> None:
    """Compiles and compares each model."""
    parser = argparse.ArgumentParser(prog="benchmarks.first_programs", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", nargs="+", default=list(_MODELS), help="names of the zoo, or files")
    parser.add_argument("--threads", type=int, default=1)
    add_json_option(parser)
    options = parser.parse_args(arguments)
    about = heading("benchmarks.first_programs", SCHEMA, arguments)
    known = observations_of(read_programs(options.data))
    models: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as name, connect("local") as device:
        profile = profile_of(device, options.threads)
        for text in options.models:
            subject = find_subject(text, (), Path(name))
            folder = Path(name) / f"{subject.name}-bundles"
            folder.mkdir()
            asked = DeployOptions(subject.path, threads=options.threads, train=False)
            model = ConstructedModel.read(asked, profile, folder, seed=0)
            models[subject.name] = figures_of(model, known, folder)
            print(subject.name, json.dumps(models[subject.name]), flush=True)
            speeds = [one["speed"]["value"] for one in models.values()]
            figures = {"threads": options.threads, "models": models, "geometric_mean": bounded(speeds)}
            write_result(options.json, about | figures)


if __name__ == "__main__":
    main()
