"""Measured programs of kernels inside of models: `python -m research.collection.in_model --help`.

Records of programs that are drawn in several ways; who drew a program is its proposer's name:

    gensor      constructed, and neighbours of the constructed program
    ranked16    the best of 16 random programs by the estimate
    ranked4     the best of 4
    random      uniformly random

Records can be continued: what they have of a model counts. FILE grows by the programs of the models.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from host.compile.device_profile import profile_of
from host.errors import ScheduleError
from host.gensor import Gensor
from host.learned_estimate.observation import values_of
from host.model import Candidate, DeviceProfile, Measurement
from host.options import DeployOptions
from host.records import MODEL, RecordStore
from host.records.store import profile_data
from host.schedules.design import DesignSpace
from host.schedules.drawing import draw_ranked
from host.transport import connect
from research.collection.constructed_model import ConstructedModel
from research.collection.dataset import MeasuredProgram, append_programs

# In which ways programs are drawn in turn: each is the best of so many draws; 0 stands for Gensor's.
_WAYS = (("ranked16", 16), ("gensor", 0), ("ranked16", 16), ("ranked4", 4)) * 2 + (("random", 1),)


class ProgramMix:
    """Programs that are drawn in several ways in turn."""

    name = "mix"

    def propose(
        self,
        space: DesignSpace,
        profile: DeviceProfile,
        history: Sequence[tuple[Candidate, Measurement]],
        k: int,
        seed: int,
    ) -> list[Candidate]:
        """Up to `k` candidates that are not in the history."""
        known = {candidate.decisions for candidate, _ in history}
        generator = random.Random(f"{space.task.workload_hash}/{seed}/{len(known)}")
        constructed = Gensor().propose(space, profile, history, k, seed=seed)
        found: dict[object, Candidate] = {}
        for number in range(8 * k):
            way, draws = _WAYS[(len(known) + number) % len(_WAYS)]
            if draws:
                try:
                    values = draw_ranked(space, generator, draws)
                except ScheduleError:
                    break
                candidate = space.candidate(values, way, space.estimate_s(values))
            elif constructed:
                candidate = constructed.pop(0)
            else:
                continue
            if candidate.decisions not in known:
                found.setdefault(candidate.decisions, candidate)
            if len(found) == k:
                break
        return list(found.values())


def programs_of(model: ConstructedModel, store: RecordStore) -> list[MeasuredProgram]:
    """The recorded programs of a model's kernels."""
    tasks = {task.workload_hash: task for task in model.lowered.tasks}
    found = []
    for record in store.select(profile_data(model.profile)):
        candidate, seconds = record.candidate, record.median_s
        space = model.plan.spaces.get(candidate.workload_hash)
        origin = record.origin
        if space is None or seconds is None or space.rule.name != candidate.rule:
            continue
        values = values_of(candidate)
        if origin.measured_in == MODEL and origin.model == model.lowered.name and space.legal(values):
            task = tasks[candidate.workload_hash]
            first = model.plan.chosen[candidate.workload_hash].decisions == candidate.decisions
            found.append(
                MeasuredProgram(
                    model.lowered.name,
                    candidate.workload_hash,
                    task.name,
                    candidate.rule,
                    candidate.space_version,
                    values,
                    candidate.proposer,
                    (seconds,),
                    task.weight,
                    {name: float(f"{part:.5g}") for name, part in space.estimated(values).items()},
                    first,
                )
            )
    return found


def main() -> None:
    """Measure programs of each model, and append them to the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--programs", type=int, default=16, help="of a kernel, about; 0 measures nothing")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with connect("local") as device:
        profile = profile_of(device, options.threads)
        for path in options.models:
            asked = DeployOptions(
                path, records=str(options.records), seed=options.seed, threads=options.threads, train=False
            )
            with tempfile.TemporaryDirectory(prefix="edgetlm-") as name:
                model = ConstructedModel.read(asked, profile, Path(name), seed=0)
                if options.programs:
                    trials = options.programs * len(model.plan.spaces)
                    asked = replace(asked, trials=trials)
                    replace(model, options=asked).tuned(device, Path(name) / "tuning", (ProgramMix(),))
            with RecordStore(options.records) as store:
                of_model = programs_of(model, store)
            print(f"{path.name}: {len(of_model)} programs of {len(model.plan.spaces)} kernels", flush=True)
            append_programs(options.file, of_model)


if __name__ == "__main__":
    main()
