"""What `--trials N` makes of models, beside chance: `python -m benchmarks.trials --json FILE`.

    python -m benchmarks.trials [--models NAME...] [--arms NAME...] [--trials N] [--seed N] [--json FILE]

Each model is compiled without measuring, and tuned by each arm from there: with records of its own, the same
number of measurements, and the same way of measuring. Then both bundles run in turn in one process: `speed`
is the time of the untuned model over that of the tuned one. The arms:

    product    what `sdk deploy --trials N` does: Bayesian optimisation over the programs of all sources
    ranked     random programs, each the best of 16 by the estimate
    random     uniformly random programs

The result is written after each model and arm.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.e2e.__main__ import find_subject
from benchmarks.result_file import add_json_option, heading, write_result
from benchmarks.trials.paired_runs import run_in_turn
from host.compile.device_profile import profile_of
from host.options import DeployOptions
from host.schedules.proposer import Proposer
from host.statistics import MIN_TRIALS, Estimate, mean_of, paired_ratio
from host.transport import Device, connect
from host.tuning.proposers.random_sampling import RandomSampling
from host.tuning.result import TuneResult
from research.collection.constructed_model import ConstructedModel

SCHEMA = "edgetlm.trials/1"
_MODELS = ("mobilenetv2", "efficientnet-b0", "swin-tiny", "vit-tiny", "bert-tiny", "resnet50", "aspp")
_RANKED = 16
# Who proposes in each arm; nobody in particular in that of the product.
ARMS: dict[str, tuple[Proposer, ...]] = {
    "product": (),
    "ranked": (RandomSampling(_RANKED),),
    "random": (RandomSampling(),),
}


def figures_of(found: Estimate, result: TuneResult, seconds: float) -> dict[str, Any]:
    """The figures of one model and arm."""
    return {
        "speed": {"value": found.value, "low": found.low, "high": found.high, "blocks": found.n},
        "kernels_ms": {"before": result.first_model_s * 1e3, "after": result.model_s * 1e3},
        "tasks": len(result.tasks),
        "replaced": sum(one.best is not None and one.best_s != one.first_s for one in result.tasks),
        "won": dict(Counter(one.best.proposer for one in result.tasks if one.best is not None)),
        "trials": result.trials,
        "failed": sum(one.failed for one in result.tasks),
        "seconds": round(seconds, 1),
    }


def geometric_means(models: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Speed by arm, over the models that every arm has tuned."""
    arms = defaultdict(list)
    complete = [found for found in models.values() if found.keys() == set().union(*models.values())]
    for found in complete:
        for arm, figures in found.items():
            arms[arm].append(figures["speed"]["value"])
    means = {arm: mean_of(values) for arm, values in arms.items() if len(values) >= MIN_TRIALS}
    return {
        arm: {"value": one.value, "low": one.low, "high": one.high, "models": one.n}
        for arm, one in means.items()
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Tunes each model by each arm and prints what it gained."""
    parser = argparse.ArgumentParser(prog="benchmarks.trials", description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(_MODELS), help="names of the zoo, or files")
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    add_json_option(parser)
    options = parser.parse_args(arguments)
    about = heading("benchmarks.trials", SCHEMA, arguments)
    models: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as name, connect("local") as device:
        profile = profile_of(device, options.threads)
        for text in options.models:
            subject = find_subject(text, (), Path(name))
            folder = Path(name) / f"{subject.name}-bundles"
            folder.mkdir()
            asked = DeployOptions(
                subject.path, trials=options.trials, seed=options.seed, threads=options.threads, train=False
            )
            model = ConstructedModel.read(asked, profile, folder, options.seed)
            untuned = model.bundle(model.plan, folder / "untuned")
            for arm in options.arms:
                models.setdefault(subject.name, {})[arm] = _measured(model, untuned, arm, device, folder)
                print(subject.name, arm, json.dumps(models[subject.name][arm]), flush=True)
                figures = {
                    "trials": options.trials,
                    "threads": options.threads,
                    "seed": options.seed,
                    "models": models,
                    "geometric_mean": geometric_means(models),
                }
                write_result(options.json, about | figures)


def _measured(
    model: ConstructedModel, untuned: Path, arm: str, device: Device, folder: Path
) -> dict[str, Any]:
    begin = time.monotonic()
    own = replace(model, options=replace(model.options, records=str(folder / f"{arm}.sqlite")))
    plan, result = own.tuned(device, folder / f"{arm}-tuning", ARMS[arm])
    seconds = time.monotonic() - begin
    before, after = run_in_turn([untuned, own.bundle(plan, folder / arm)], model.profile.threads)
    return figures_of(paired_ratio(before, after), result, seconds)


if __name__ == "__main__":
    main()
