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
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.e2e.__main__ import find_subject
from benchmarks.result_file import add_json_option, heading, write_result
from host.compile import static_model
from host.compile.bundle_builder import BundleBuilder
from host.compile.device_profile import profile_of
from host.compile.model_compiler import ModelCompiler
from host.compile.model_file import read_model
from host.compile.static_model import Plan
from host.compile.tuning.kernel_tuning import KernelTuning
from host.model import DeviceProfile, ImportedModel, LoweredModel
from host.options import DeployOptions
from host.progress import Silence, StageClock
from host.schedules.proposer import Proposer
from host.statistics import MIN_TRIALS, Estimate, mean_of, paired_ratio
from host.transport import Device, connect
from host.tuning.proposers.random_sampling import RandomSampling
from host.tuning.result import TuneResult
from host.versions import versions

SCHEMA = "edgetlm.trials/1"
_MODELS = ("mobilenetv2", "efficientnet-b0", "swin-tiny", "vit-tiny", "bert-tiny", "resnet50", "aspp")
_RANKED = 16
# Who proposes in each arm; nobody in particular in that of the product.
ARMS: dict[str, tuple[Proposer, ...]] = {
    "product": (),
    "ranked": (RandomSampling(_RANKED),),
    "random": (RandomSampling(),),
}


@dataclass(frozen=True, eq=False)
class TunedSubject:
    """One model on one device.

    Attributes:
        options: with the number of trials.
        profile: of the device.
        device: connected.
        model: imported.
        lowered: the same, lowered.
        constructed: programs that were made without measuring.
        folder: for bundles.
    """

    options: DeployOptions
    profile: DeviceProfile
    device: Device
    model: ImportedModel
    lowered: LoweredModel
    constructed: Plan
    folder: Path

    @classmethod
    def read(
        cls, options: DeployOptions, profile: DeviceProfile, device: Device, folder: Path
    ) -> TunedSubject:
        """Import and lower a model, and construct its programs."""
        clock = StageClock(Silence())
        model = read_model(options, clock)
        lowered = ModelCompiler(options, profile, folder, clock).lower(model)
        constructed = static_model.propose(lowered, profile, options.seed, clock)
        return cls(options, profile, device, model, lowered, constructed, folder)

    def bundle(self, name: str, plan: Plan) -> Path:
        """The bundle of the model with the programs of a plan."""
        folder = self.folder / name
        folder.mkdir()
        clock = StageClock(Silence())
        made = static_model.build(self.lowered, self.profile, plan, folder / "lib.so", clock)
        builder = BundleBuilder(ModelCompiler(self.options, self.profile, folder, clock))
        builder.write(self.model, made)
        return builder.directory("tvm")

    def tuned(self, arm: str) -> tuple[Plan, TuneResult]:
        """The plan that an arm comes to, with records of its own."""
        folder = self.folder / f"{arm}-tuning"
        folder.mkdir()
        tuning = KernelTuning(
            options=self.options,
            profile=self.profile,
            device=self.device,
            connect=lambda: connect("local"),
            folder=folder,
            clock=StageClock(Silence()),
            content_hash=self.model.content_hash,
            versions=versions(),
            replaced=lambda device: None,
            instead=ARMS[arm],
        )
        return tuning.improve(self.model, self.lowered, self.constructed, self.constructed)


def speed(untuned: Path, tuned: Path, threads: int) -> Estimate:
    """Time of one bundle over that of another, both run in turn in a process of their own."""
    words = [sys.executable, "-m", "benchmarks.trials.paired_runs", str(untuned), str(tuned)]
    done = subprocess.run([*words, "--threads", str(threads)], check=True, stdout=subprocess.PIPE, text=True)
    before, after = zip(*json.loads(done.stdout), strict=True)
    return paired_ratio(before, after)


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
            tuned = TunedSubject.read(asked, profile, device, folder)
            untuned = tuned.bundle("untuned", tuned.constructed)
            for arm in options.arms:
                models.setdefault(subject.name, {})[arm] = _measured(tuned, untuned, arm)
                print(subject.name, arm, json.dumps(models[subject.name][arm]), flush=True)
                figures = {
                    "trials": options.trials,
                    "threads": options.threads,
                    "seed": options.seed,
                    "models": models,
                    "geometric_mean": geometric_means(models),
                }
                write_result(options.json, about | figures)


def _measured(subject: TunedSubject, untuned: Path, arm: str) -> dict[str, Any]:
    begin = time.monotonic()
    records = str(subject.folder / f"{arm}.sqlite")
    own = replace(subject, options=replace(subject.options, records=records))
    plan, result = own.tuned(arm)
    seconds = time.monotonic() - begin
    tuned = own.bundle(arm, plan)
    return figures_of(speed(untuned, tuned, subject.profile.threads), result, seconds)


if __name__ == "__main__":
    main()
