"""Plans of whole models beside each other: `python -m benchmarks.plans MODEL... --json FILE`.

For each model: the plan of the passes, the best plans by the estimate, and as many plans of chance, each
the best of eight random ones by the same estimate. All run in one process in interleaved rounds; a round is
processor time, so that other work on the machine counts little. The best measured plan of an arm is chosen by
the even rounds and timed by the odd ones: the fastest of several noisy times would be faster than it would be
again. With `--without KIND,KIND` a further plan for each of these kinds takes the first option at all of its
sites, which leaves that kind out, and one leaves all of them out: they say what kinds of decisions gain. A
model that has no such decision, or whose passes leave it out themselves, has no such plan.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.e2e.__main__ import export_model
from benchmarks.result_file import add_json_option, heading, write_result
from host.lowering.bands.choice import ROWS_KIND
from host.lowering.fusion import INPUTS, TRANSPOSE
from host.lowering.passes.convolutions.join_slices import SLICES
from host.lowering.passes.integers.rows_of_taps import TAPS
from host.lowering.passes.pack_weights import LANES
from host.lowering.passes.use_winograd import ALGORITHM
from host.plans.proposers import Proposed, Space
from host.statistics import Estimate, geometric_mean, paired_ratio

SCHEMA = "edgetlm.plans/1"
_ROUND_S = 0.1
# The arms of plans that leave out one kind of decisions, and all kinds that were named.
WITHOUT = "without "
WITHOUT_ALL = "without all"
KINDS = (ALGORITHM, LANES, TRANSPOSE, INPUTS, SLICES, ROWS_KIND, TAPS)


def plans_of(
    path: Path, folder: Path, count: int, seed: int, without: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """The bundles of a model's plans, each once: the passes' first.

    Args:
        path: of the model.
        folder: for the bundles.
        count: of plans of each arm.
        seed: of chance.
        without: kinds of decisions that further plans leave out, each by itself and all together.
    """
    from host.compile import static_model
    from host.compile.bundle_builder import BundleBuilder
    from host.compile.device_profile import target_profile
    from host.compile.model_compiler import ModelCompiler
    from host.compile.model_file import read_model
    from host.options import CompileOptions
    from host.plans.estimate import PlanEstimator
    from host.plans.plan import OWN
    from host.plans.proposers import at_random, by_estimate
    from host.progress import Silence, StageClock

    options = CompileOptions(model=path, backend="tvm", threads=1, records=str(folder / "records.db"))
    profile, clock = target_profile("local", 1, lambda _: None), StageClock(Silence())
    model = read_model(options, clock, None, profile)
    compiler = ModelCompiler(options, profile, folder, clock, model_plan=OWN)

    def lower(decisions: Mapping[str, int]) -> Any:
        return static_model.lower_model(model, profile, clock, "", decisions)

    started = time.process_time()
    space = Space(lower, lower({}), PlanEstimator(profile))
    proposed = [space.passes()]
    if count:
        proposed += [*by_estimate(space, count), *at_random(space, count, seed)]
    proposed += plans_without(space, without)
    entries = []
    for number, one in enumerate(proposed):
        place = folder / f"{number}"
        # Of a run before, in a folder that is kept.
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        made = replace(compiler, folder=place, model_plan=one.plan)
        BundleBuilder(made).compile(model)
        departures = [clause for clause in one.trace.split("; ") if "(the passes:" in clause]
        entries.append(
            {
                "arm": one.proposer,
                "plan": one.plan.name,
                "estimate_ms": one.estimate.total_s * 1e3,
                "departures": departures,
                "bundle": place / "tvm",
            }
        )
    entries[0]["classes"] = len(space.classes)
    entries[0]["seconds"] = time.process_time() - started
    return entries


def plans_without(space: Space, kinds: Sequence[str]) -> list[Proposed]:
    """The plans that leave kinds of decisions out: each by itself, and all together where there are several.

    A plan that would be the passes' own is left out, and so is one that has no lowering.
    """
    groups: dict[str, tuple[str, ...]] = {f"{WITHOUT}{kind}": (kind,) for kind in kinds}
    if len(kinds) > 1:
        groups[WITHOUT_ALL] = tuple(kinds)
    own = [one.own for one in space.classes]
    found = []
    for arm, group in groups.items():
        starts = tuple(f"{kind} " for kind in group)
        values = [one.options[0] if one.alike.startswith(starts) else one.own for one in space.classes]
        made = space.proposed(values, arm) if values != own else None
        found += [made] if made is not None else []
    return found


def rounds_of(entries: Sequence[Mapping[str, Any]], rounds: int) -> list[list[float]]:
    """Processor seconds of one run of each bundle in each round.

    Args:
        entries: with their bundles.
        rounds: all bundles take turns in each.
    """
    from device_agent.execute import engines
    from device_agent.execute.engines.arrays import from_array
    from device_agent.store.opened_bundle import open_bundle
    from host import bundle

    loaded = []
    for entry in entries:
        path = entry["bundle"]
        engine = engines.create("tvm")
        engine.load_bundle(open_bundle(path, "unsigned"), 1)
        engine.bind([from_array(one) for one in bundle.golden_cases(path, bundle.load(path))[0].inputs])
        engine.invoke()
        loaded.append(engine)
    first = time.process_time()
    loaded[0].invoke()
    runs = max(1, round(_ROUND_S / max(1e-6, time.process_time() - first)))
    times: list[list[float]] = [[] for _ in loaded]
    for number in range(rounds):
        # The order turns round, so that nothing always runs behind the same one.
        order = range(len(loaded)) if number % 2 else reversed(range(len(loaded)))
        for place in order:
            loaded[place].invoke()
            started = time.process_time()
            for _ in range(runs):
                loaded[place].invoke()
            times[place].append((time.process_time() - started) / runs)
    return times


def compared(entries: Sequence[dict[str, Any]], times: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Speeds against the plan of the passes: of each plan, of the first ones, and of the best measured."""
    own = times[0]
    rows = []
    for entry, mine in zip(entries, times, strict=True):
        fields = {name: value for name, value in entry.items() if name != "bundle"}
        speed = _bounded(paired_ratio(own, mine))
        rows.append({**fields, "median_ms": statistics.median(mine) * 1e3, "speed": speed})
    found: dict[str, Any] = {"plans": rows}
    for arm in dict.fromkeys(str(entry["arm"]) for entry in entries[1:]):
        places = [place for place, entry in enumerate(entries) if entry["arm"] == arm]
        if places:
            # As a deployment: the present plan stays where no other was faster in the rounds that choose.
            best = min([0, *places], key=lambda place: statistics.fmean(times[place][::2]))
            ratio = paired_ratio(own[1::2], times[best][1::2]) if best else None
            found[f"best_measured_by_{arm}"] = {
                "plan": entries[best]["plan"],
                "speed": {"value": 1.0} if ratio is None else _bounded(ratio),
            }
            first = min(places, key=lambda place: entries[place]["estimate_ms"])
            found[f"first_by_{arm}"] = {
                "plan": entries[first]["plan"],
                "speed": _bounded(paired_ratio(own, times[first])),
            }
    return found


def _bounded(ratio: Estimate) -> dict[str, float | None]:
    return {"value": ratio.value, "low": ratio.low, "high": ratio.high}


def summary_of(models: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Geometric means of the speeds of each arm over the models that have it."""
    arms = dict.fromkeys(name for entry in models.values() for name in entry if name != "plans")
    return {
        arm: geometric_mean([entry[arm]["speed"]["value"] for entry in models.values() if arm in entry])
        for arm in arms
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plans", description=__doc__)
    parser.add_argument("models", nargs="+", help="names of the zoo, or ONNX files")
    parser.add_argument("--count", type=int, default=3, help="plans of each arm")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without", default="", metavar="KIND,KIND", help="kinds of decisions to leave out")
    parser.add_argument("--folder", type=Path, help="for models and bundles; models are kept between runs")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    without = [one for one in options.without.split(",") if one]
    if unknown := sorted(set(without) - set(KINDS)):
        parser.error(f"no kind of decisions {unknown[0]!r}: give some of {', '.join(KINDS)}")
    content = heading("benchmarks.plans", SCHEMA, arguments)
    models: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="edgetlm-plans-") as scratch:
        base = options.folder or Path(scratch)
        for name in options.models:
            path = Path(name) if Path(name).is_file() else export_model(name, "onnx", base / "models")
            folder = base / "plans" / Path(name).stem
            folder.mkdir(parents=True, exist_ok=True)
            entries = plans_of(path, folder, options.count, options.seed, without)
            times = rounds_of(entries, options.rounds)
            figures = compared(entries, times)
            models[Path(name).stem] = figures
            write_result(options.json, {**content, "models": models, "summary": summary_of(models)})
            print(
                Path(name).stem,
                {key: value for key, value in models[Path(name).stem].items() if key != "plans"},
            )
    print(summary_of(models))
    return 0


if __name__ == "__main__":
    sys.exit(main())
