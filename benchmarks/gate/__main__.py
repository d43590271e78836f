"""How often the gate of fine-tuning is right, on recorded times.

    python -m benchmarks.gate --folder FOLDER --trainings 20 [--start CHECKPOINT] [--kinds KIND...] [--json F]

Nothing is measured: the times are those of programs that a processor has run (`--data`). A small network
learns the sample of pre-training that is shipped; CHECKPOINT is used in its place. Then, for each seed, half
of the recorded tasks teach and the other half says what is true. The network is fine-tuned as `sdk tune`
does between two batches, and the gate judges it:

    true        on the recorded times
    shuffled    on times that are shuffled within each task, those that the gate sees too
    recovered   on the recorded times, where the model in use was fine-tuned on reversed ones: the slowest
                programs of each task were taken for the fastest

The truth about the new model and the one in use is what both choose for the tasks that taught nothing, as
the gate computes it. It is `better` or `worse` where a one-sided 95% bound says so. Right is to accept what
is better, and to refuse what is worse; where the truth is neither, no verdict is wrong by it.

FOLDER keeps the tasks, the network and a line for each training; a later call goes on there.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.gate.network import small_network
from benchmarks.gate.recorded import recorded_tasks, reversed_times, shuffled
from benchmarks.result_file import add_json_option, heading, write_result
from host.statistics import Estimate, mean_of, one_sided_bound
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.network import load_model
from host.tlm.training import gate
from host.tlm.training.example import Example
from host.tlm.training.finetune import CANDIDATE, FinetuneOptions, FinetuneResult, finetune

SCHEMA = "edgetlm.gate/1"
KINDS = ("true", "shuffled", "recovered")
_DATA = ("epyc_avx2", "in_model_epyc_avx2")
# As the loop of tuning trains between two batches.
_STEPS, _KEEP = 24, 4


def tuned(
    start: Path, present: Path, examples: Sequence[Example], seed: int, out: Path
) -> tuple[Path, FinetuneResult]:
    """Fine-tune a network: the new checkpoint, and what the gate says of it."""
    options = FinetuneOptions(start, out, present=present, steps=_STEPS, keep=_KEEP, seed=seed)
    result = finetune(options, examples, lambda _: None)
    return (result.checkpoint if result.accepted else out / CANDIDATE), result


def choices(checkpoint: Path, tasks: Sequence[Example]) -> list[gate.Chosen]:
    """What a deployment with a checkpoint would choose of the recorded programs."""
    vocabulary = Vocabulary()
    return gate.choices_of(load_model(checkpoint, vocabulary)[0], vocabulary, tasks)


def trained(tasks: Sequence[Example], seed: int, base: Path, kinds: Sequence[str]) -> list[dict[str, Any]]:
    """What the gate says of one training of each kind, and what is true."""
    generator = random.Random(f"gate/{seed}")
    order = list(tasks)
    generator.shuffle(order)
    teach, truth = order[: len(order) // 2], order[len(order) // 2 :]
    told = [shuffled(one, generator) for one in teach]
    lines = []
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as name:
        folder = Path(name)
        for kind in kinds:
            present = base
            if kind == "recovered":
                wrong = [reversed_times(one) for one in teach]
                present, _ = tuned(base, base, wrong, seed, folder / "wrong")
            learned = told if kind == "shuffled" else teach
            new, result = tuned(base, present, learned, seed, folder / kind)
            line = {"seed": seed, "kind": kind, "accepted": result.accepted, "why": result.why}
            lines.append(line | true_of(choices(present, truth), choices(new, truth)))
    return lines


def true_of(before: Sequence[gate.Chosen], after: Sequence[gate.Chosen]) -> dict[str, Any]:
    """How much faster the choices of a new model are, and whether a bound says that they are or are not."""
    verdict, turned = gate.compare(before, after), gate.compare(after, before)
    return {
        "first": verdict.first.value,
        "best": verdict.best.value,
        "truth": "better" if verdict.accepted else "worse" if turned.accepted else "neither",
    }


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
                "accepted": sum(one["truth"] == truth and one["accepted"] for one in own),
            }
            for truth in ("better", "neither", "worse")
        }
        found[kind] = {
            "trainings": len(own),
            "accepted": sum(one["accepted"] for one in own),
            "truth": by_truth,
            "first": _mean([one["first"] for one in own]),
            "best": _mean([one["best"] for one in own]),
        }
    return found


def _mean(values: Sequence[float]) -> dict[str, float | None]:
    found: Estimate = mean_of(values)
    return {"value": found.value, "low": found.low, "high": found.high, "bound": one_sided_bound(found)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Train until there are so many lines, then write the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gate", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="keeps what is made; created")
    parser.add_argument("--trainings", type=int, default=20, help="of each kind")
    parser.add_argument("--start", type=Path, help="a checkpoint; a small network of its own if left out")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="of training")
    parser.add_argument("--data", nargs="+", default=list(_DATA), help="files of research/collection")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    about = heading("benchmarks.gate", SCHEMA, arguments)
    torch.set_num_threads(1)
    options.folder.mkdir(parents=True, exist_ok=True)
    tasks = {
        name: recorded_tasks(
            Path("research") / "collection" / f"{name}.jsonl.gz", options.folder / f"{name}.tasks.jsonl"
        )
        for name in options.data
    }
    base = options.start or small_network(options.folder / "network")
    path = options.folder / "trainings.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    done = {(one["seed"], one["kind"]) for one in lines}
    for seed in range(options.trainings):
        missing = [kind for kind in options.kinds if (seed, kind) not in done]
        if missing:
            # Both ways of measuring in turn.
            name = options.data[seed % len(options.data)]
            new = [one | {"data": name} for one in trained(tasks[name], seed, base, missing)]
            lines += new
            with path.open("a") as stream:
                stream.writelines(json.dumps(one) + "\n" for one in new)
            print(*map(json.dumps, new), sep="\n", flush=True)
    used = [one for one in lines if one["seed"] < options.trainings and one["kind"] in options.kinds]
    sizes = {name: len(of) for name, of in tasks.items()}
    write_result(options.json, about | {"tasks": sizes, "kinds": figures_of(used)})


if __name__ == "__main__":
    main()
