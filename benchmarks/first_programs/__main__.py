"""First programs of networks that taught nothing, end to end: `python -m benchmarks.first_programs`.

    python -m benchmarks.first_programs --data FILE [--models NAME...] [--threads N] [--seed N] [--json FILE]

FILE has programs that were measured inside of models (`python -m research.collection.in_model`). Each model
is compiled three times without measuring:

    constructed   with the programs of Gensor
    learned       with the programs that the learned estimate chooses, as `sdk deploy` does, after it has seen
                  FILE without this model and without its kernels
    ranked        chance with the same ranker: each kernel that the learned estimate may change gets one
                  random program, the best of 16 by the estimate of its design space

Then the bundles run in turn in one process. `speed` is the time of the constructed model over that of the
learned one, `ranked` over that of the ranked one, and `over_ranked` is the time of the ranked model over that
of the learned one. All are 1 where no rule convinces, since nothing may change there.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.e2e.__main__ import find_subject
from benchmarks.first_programs.figures import figures_of, geometric_means
from benchmarks.learned_estimate.withheld import observations_of
from benchmarks.result_file import add_json_option, heading, write_result
from host.compile.device_profile import profile_of
from host.options import DeployOptions
from host.transport import connect
from research.collection.constructed_model import ConstructedModel
from research.collection.dataset import current_programs

SCHEMA = "edgetlm.first_programs/2"
_MODELS = (
    *("mobilenetv2", "vit-tiny", "efficientnet-b0", "swin-tiny"),
    *("bert-tiny", "resnet50", "convnext-tiny", "aspp"),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Compiles and compares each model."""
    parser = argparse.ArgumentParser(prog="benchmarks.first_programs", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", nargs="+", default=list(_MODELS), help="names of the zoo, or files")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of random programs and of the construction")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    about = heading("benchmarks.first_programs", SCHEMA, arguments)
    known = observations_of(current_programs(options.data))
    models: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as name, connect("local") as device:
        profile = profile_of(device, options.threads)
        for text in options.models:
            subject = find_subject(text, (), Path(name))
            folder = Path(name) / f"{subject.name}-bundles"
            folder.mkdir()
            asked = DeployOptions(subject.path, threads=options.threads, train=False)
            model = ConstructedModel.read(asked, profile, folder, options.seed)
            models[subject.name] = figures_of(model, known, folder, options.seed)
            print(subject.name, json.dumps(models[subject.name]), flush=True)
            figures = {
                "threads": options.threads,
                "seed": options.seed,
                "models": models,
                "geometric_mean": geometric_means(models),
            }
            write_result(options.json, about | figures)


if __name__ == "__main__":
    main()
