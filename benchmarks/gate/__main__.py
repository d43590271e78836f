"""How often the gate of fine-tuning is right, on recorded times.

    python -m benchmarks.gate --folder FOLDER --trainings 20 [--start CHECKPOINT] [--kinds KIND...] [--json F]

Nothing is measured: the times are those of programs that a processor has run (`--data`), or simulated. A
small network learns the sample of pre-training that is shipped; CHECKPOINT is used in its place. Then, for
each seed, half of the tasks teach and the other half says what is true. The network is fine-tuned as `sdk
tune` does between two batches, and the gate judges it:

    true        on the recorded times
    shuffled    on times that are shuffled within each task, those that the gate sees too
    recovered   on the recorded times, where the model in use was fine-tuned on reversed ones: the slowest
                programs of each task were taken for the fastest
    simulated   of 64 programs of each of about 120 tasks on a simulated board, for each seed another one with
                other tasks: smaller caches, slower memory and longer latency than it is said to have, and a
                preference for values of each decision, the same ones in all tasks (`simulated.py`)
    simulated_shuffled     the same, with times that are shuffled within each task

The simulated boards are where there is something to gain: their truth departs from the estimate in a way that
holds for all tasks, so that it can be learned. They are trained as at the end of a tuning.

The truth about the new model is what it, the one in use and chance choose for the tasks that taught nothing,
as the gate computes it. It is `better` where a one-sided 95% bound says that it is faster than the one in use
and it is faster than chance on average, and `worse` where a bound says that it is slower than one of them.
Right is to accept what is better, and to refuse all else: `right`. `right_where_shown` leaves out what is
neither.

The arms that have no model draw as often, uniformly from the same programs, and rank by T (`chance`) or by
T_hat, which the same tasks teach (`chance_that`); `before_that` and `new_that` are the programs of the model
in use and of the new one ranked by T_hat. All are speeds over the model in use, ranked by T as deployed.

For trainings on shuffled times, `false_acceptance` has how often the gate accepts their models if the times
of the tasks that judge are shuffled anew, by the number of these tasks (`false_acceptance.py`).

FOLDER keeps the tasks, the network, a line for each training and the settings of all of them; a later call
goes on there, unless a setting has changed since. What is accepted follows from the recorded bounds by the
gate as it is.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.gate.false_acceptance import SHUFFLES, false_acceptance
from benchmarks.gate.network import small_network
from benchmarks.gate.recorded import (
    RecordedTask,
    learned_logs,
    recorded_tasks,
    reversed_times,
    shuffled,
)
from benchmarks.gate.settings import check_settings
from benchmarks.gate.simulated import simulated_tasks
from benchmarks.result_file import add_json_option, heading, write_result
from host.statistics import Estimate, mean_of, one_sided_bound
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.network import load_model
from host.tlm.training import gate
from host.tlm.training.finetune import CANDIDATE, FinetuneOptions, FinetuneResult, finetune
from host.tuning.learning.finetuning import between_batches

SCHEMA = "edgetlm.gate/1"
RECORDED = ("true", "shuffled", "recovered")
SIMULATED = ("simulated", "simulated_shuffled")
KINDS = (*RECORDED, *SIMULATED)
_ARMS = ("chance", "chance_that", "before_that", "new_that")
_DATA = ("epyc_avx2", "in_model_epyc_avx2")


def tuned(
    start: Path, present: Path, tasks: Sequence[RecordedTask], seed: int, out: Path, last: bool = False
) -> tuple[Path, FinetuneResult]:
    """Fine-tune a network: the new checkpoint, and what the gate says of it.

    Args:
        start: the checkpoint that training starts from.
        present: the model in use.
        tasks: that teach.
        seed: of the batches.
        out: folder of the checkpoints.
        last: whether it is trained as at the end of a tuning, and not as between two batches.
    """
    options = FinetuneOptions(start, out, present=present, seed=seed, always=True)
    options = options if last else between_batches(options)
    result = finetune(options, [one.example for one in tasks], lambda _: None)
    return (result.checkpoint if result.accepted else out / CANDIDATE), result


def choices(checkpoint: Path, tasks: Sequence[RecordedTask]) -> list[gate.Chosen]:
    """What a deployment with a checkpoint would choose of the recorded programs."""
    vocabulary = Vocabulary()
    model, _ = load_model(checkpoint, vocabulary)
    return gate.choices_of(model, vocabulary, [one.example for one in tasks])


def trained(
    tasks: Sequence[RecordedTask], seed: int, base: Path, kinds: Sequence[str]
) -> list[dict[str, Any]]:
    """What the gate says of one training of each kind, and what is true."""
    generator = random.Random(f"gate/{seed}")
    order = list(tasks)
    generator.shuffle(order)
    teach, truth = order[: len(order) // 2], order[len(order) // 2 :]
    wrong = [shuffled(one, generator) for one in teach]
    lines = []
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as name:
        folder = Path(name)
        for kind in kinds:
            present = base
            if kind == "recovered":
                reverse = [reversed_times(one) for one in teach]
                present, _ = tuned(base, base, reverse, seed, folder / "reversed")
            learned = wrong if kind.endswith("shuffled") else teach
            new, result = tuned(base, present, learned, seed, folder / kind, kind in SIMULATED)
            line = {"seed": seed, "kind": kind, "steps": result.steps, "forgotten": result.forgotten}
            line |= {"bound": result.bound, "over_chance": result.over_chance}
            if kind.endswith("shuffled"):
                examples = [one.example for one in learned]
                line["false_acceptance"] = false_acceptance(present, new, examples)
            lines.append(line | found_of(present, new, learned, truth))
    return lines


def found_of(
    present: Path, new: Path, learned: Sequence[RecordedTask], judged: Sequence[RecordedTask]
) -> dict[str, Any]:
    """What is true of a new model, and what each arm chooses for tasks that taught nothing."""
    before, after, chance = choices(present, judged), choices(new, judged), by_chance(judged)
    by_that = ranked_by(judged, learned_logs(learned, judged))
    arms = {
        "chance": chance,
        "chance_that": by_chance(by_that),
        "before_that": choices(present, by_that),
        "new_that": choices(new, by_that),
    }
    return true_of(before, after, chance) | {"arms": beside(before, arms)}


def ranked_by(tasks: Sequence[RecordedTask], logs: Sequence[Sequence[float]]) -> list[RecordedTask]:
    """Tasks whose programs are ranked by other estimates, of which there are the logarithms."""
    return [
        replace(one, example=replace(one.example, estimates=tuple(map(math.exp, own))))
        for one, own in zip(tasks, logs, strict=True)
    ]


def by_chance(tasks: Sequence[RecordedTask]) -> list[gate.Chosen]:
    """What is chosen if all programs are equally likely to be drawn."""
    return gate.by_chance([one.example for one in tasks], Vocabulary())


def beside(
    before: Sequence[gate.Chosen], arms: Mapping[str, Sequence[gate.Chosen]]
) -> dict[str, dict[str, float]]:
    """Speed of the choices of each arm over those of the model in use: first programs, and best of ten."""
    found = {}
    for arm, chosen in arms.items():
        verdict = gate.compare(before, chosen)
        found[arm] = {"first": verdict.first.value, "best": verdict.best.value}
    return found


def true_of(
    before: Sequence[gate.Chosen], after: Sequence[gate.Chosen], chance: Sequence[gate.Chosen]
) -> dict[str, Any]:
    """How much faster the choices of a new model are, and whether a bound says that they are or are not."""
    verdict = gate.compare(before, after, chance)
    slower = any(_above(gate.compare(after, other)) for other in (before, chance))
    better = _above(verdict) and not slower and (verdict.over_chance or 0.0) > 1.0
    return {
        "first": verdict.first.value,
        "best": verdict.best.value,
        "truth": "better" if better else "worse" if slower else "neither",
    }


def _above(verdict: gate.Verdict) -> bool:
    """Whether the bound shows any gain: less than what the gate asks for is true too."""
    return verdict.bound is not None and verdict.bound > 1.0


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The trainings of a file; none where there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def figures_of(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """For each kind of training, what is true of the new models, and how the gate judged them."""
    found: dict[str, Any] = {}
    for kind in (*KINDS, "all"):
        own = [one for one in lines if kind in (one["kind"], "all")]
        if not own:
            continue
        by_truth = {
            truth: {
                "trainings": sum(one["truth"] == truth for one in own),
                "accepted": sum(one["truth"] == truth and _accepted(one) for one in own),
            }
            for truth in ("better", "neither", "worse")
        }
        found[kind] = {
            "trainings": len(own),
            "accepted": sum(_accepted(one) for one in own),
            "truth": by_truth,
            "first": _mean([one["first"] for one in own]),
            "best": _mean([one["best"] for one in own]),
            **_shares(own),
            **_false_acceptance(own),
            "arms": {
                arm: {part: _mean([one["arms"][arm][part] for one in own]) for part in ("first", "best")}
                for arm in _ARMS
            },
        }
    return found


def _shares(lines: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """How often the gate is right, of all trainings, and of those whose new model is better or worse."""
    shown = [one for one in lines if one["truth"] != "neither"]
    return {
        name: _share([_accepted(one) == (one["truth"] == "better") for one in some])
        for name, some in (("right", lines), ("right_where_shown", shown))
    }


def _false_acceptance(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over the trainings on shuffled times, by the number of tasks that judge."""
    found: dict[str, list[float]] = {}
    for one in lines:
        shares = list(one.get("false_acceptance", {}).items())
        for place, (count, share) in enumerate(shares, start=1):
            found.setdefault("all" if place == len(shares) else count, []).append(share)
    if not found:
        return {}
    return {"false_acceptance": {count: statistics.fmean(shares) for count, shares in found.items()}}


def _accepted(line: Mapping[str, Any]) -> bool:
    """What the gate as it is says of a training."""
    return gate.accepts(line["bound"], line["over_chance"])


def _share(right: Sequence[bool]) -> float | None:
    return sum(right) / len(right) if right else None


def _mean(values: Sequence[float]) -> dict[str, float | None]:
    found: Estimate = mean_of(values)
    return {"value": found.value, "low": found.low, "high": found.high, "bound": one_sided_bound(found)}


def _kept(lines: list[dict[str, Any]], path: Path) -> list[dict[str, Any]]:
    """New trainings, added to a file and printed."""
    text = "".join(json.dumps(one) + "\n" for one in lines)
    with path.open("a") as stream:
        stream.write(text)
    print(text, end="", flush=True)
    return lines


def _tasks(data: str, seed: int, folder: Path) -> list[RecordedTask]:
    """The tasks of a simulated board or of a file of measured programs, kept in a folder."""
    keep = folder / f"{data}.tasks.jsonl"
    if data.startswith("simulated"):
        return simulated_tasks(seed, keep)
    return recorded_tasks(Path("research") / "collection" / f"{data}.jsonl.gz", keep)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train until there are so many lines, then write the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gate", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="keeps what is made; created")
    parser.add_argument("--trainings", type=int, default=20, help="of each kind")
    parser.add_argument("--seeds", type=int, nargs="+", help="of the draws of tasks; 0 to N-1 if left out")
    parser.add_argument("--start", type=Path, help="a checkpoint; a small network of its own if left out")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="of training")
    parser.add_argument("--data", nargs="+", default=list(_DATA), help="files of research/collection")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    about = heading("benchmarks.gate", SCHEMA, arguments)
    torch.set_num_threads(1)
    options.folder.mkdir(parents=True, exist_ok=True)
    base = options.start or small_network(options.folder / "network")
    path = options.folder / "trainings.jsonl"
    settings = check_settings(options.folder, base)
    lines = read_lines(path)
    done = {(one["seed"], one["kind"]) for one in lines}
    seeds = options.seeds or list(range(options.trainings))
    sizes: dict[str, int] = {}
    for seed in seeds:
        # Both ways of measuring in turn.
        for kinds, data in (
            (RECORDED, options.data[seed % len(options.data)]),
            (SIMULATED, f"simulated.{seed}"),
        ):
            asked = [kind for kind in options.kinds if kind in kinds]
            if asked:
                tasks = _tasks(data, seed, options.folder)
                sizes[data] = len(tasks)
                missing = [kind for kind in asked if (seed, kind) not in done]
                new = trained(tasks, seed, base, missing) if missing else []
                lines += _kept([one | {"data": data, "commit": about["commit"]} for one in new], path)
    used = [one for one in lines if one["seed"] in seeds and one["kind"] in options.kinds]
    rule = {"design": gate.DESIGN, "least_gain": gate.LEAST_GAIN, "seeds": seeds, "shuffles": SHUFFLES}
    rule |= {"settings": settings, "commits": sorted({one["commit"] for one in used})}
    write_result(options.json, about | {"tasks": sizes, "gate": rule, "kinds": figures_of(used)})


if __name__ == "__main__":
    main()
