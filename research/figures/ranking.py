"""How to rank programs before measuring, found out by measuring all of them on this machine.

    python -m research.figures.ranking MODELS --checkpoint FOLDER [--networks NAMES] [--tasks 3]
                                             [--measured FILE]

Of some tasks of each held-out network, drawn at random, the 32 programs that the model writes and four of
Gensor's are compiled for this machine and run in turn, one thread; the fastest run of each counts, as other
work on the machine only ever adds. FILE takes one JSON line a task; tasks that it has are not measured again.
Printed is the speed of the first, the best of the first 4 and the best of the first 10 programs beside the
fastest of all, geometric mean over the tasks, for each way of ranking.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tvm

from host.compile.device_profile import profile_of
from host.errors import EdgeError
from host.gensor import Gensor
from host.model import DeviceProfile
from host.schedules import DesignSpace, scheduled_function
from host.statistics import geometric_mean
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.decoding import generate
from host.tlm.model.network import load_model
from host.tlm.ranking import Ranking, ScoredProgram, ranked
from host.transport import connect
from research.figures.sentences import spaces_of
from research.pretraining.list_held_out import NETWORKS

_PROGRAMS, _ROUNDS, _CALLS = 32, 8, 5
_LIKELIHOODS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_VARIETIES = (0.0, 0.1, 0.3, 1.0)


class Case:
    """One program: what was written of it, and its fastest run in seconds."""

    def __init__(self, space: DesignSpace, values: dict[str, int], target: tvm.target.Target) -> None:
        function = scheduled_function(space.apply(space.candidate(values, "tlm")))
        module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
        self._function = tvm.compile(module, target=target).jit()["main"]
        self.seconds = math.inf

    def run(self, arguments: Sequence[Any]) -> None:
        """Call the function a few times and keep the shortest time."""
        for _ in range(_CALLS):
            begin = time.perf_counter()
            self._function(*arguments)
            self.seconds = min(self.seconds, time.perf_counter() - begin)


def measure(model: Any, vocabulary: Vocabulary, space: DesignSpace, profile: DeviceProfile) -> dict[str, Any]:
    """One task: for each program who made it, log-likelihood, estimate and measured seconds."""
    names = [decision.name for decision in space.decisions]
    known: dict[tuple[int, ...], tuple[str, float]] = {}
    for one in generate(model, vocabulary, space, _PROGRAMS, seed=1):
        known.setdefault(one.values, ("tlm", one.log_probability))
    for candidate in Gensor().propose(space, profile, [], 4, 0):
        known.setdefault(tuple(int(candidate.value(name)) for name in names), ("gensor", 0.0))
    target = tvm.target.Target(profile.board.tvm_target)
    cases = {values: Case(space, dict(zip(names, values, strict=True)), target) for values in known}
    generator = np.random.default_rng(0)
    arguments = [
        tvm.runtime.tensor(generator.integers(0, 7, [int(d) for d in one.shape]).astype(str(one.dtype)))
        for one in space.task.function.params
    ]
    for _ in range(_ROUNDS):
        for case in cases.values():
            case.run(arguments)
    programs = [
        [
            *known[values],
            space.estimate_s(dict(zip(names, values, strict=True))),
            cases[values].seconds,
        ]
        for values in known
    ]
    return {"task": space.task.workload_hash, "values": list(known), "programs": programs}


def mean_speed(lines: Sequence[dict[str, Any]], ranking: Ranking | None) -> str:
    """Speed of the first, the best of 4 and the best of 10, beside the fastest program of all."""
    found: list[list[float]] = []
    for line in lines:
        written, seconds = [], {}
        for values, (who, log_probability, estimate, measured) in zip(
            line["values"], line["programs"], strict=True
        ):
            if who == "tlm":
                estimated = math.nan if ranking is None else estimate
                written.append(ScoredProgram(tuple(values), log_probability, estimated))
                seconds[tuple(values)] = measured
        order = [seconds[one.values] for one in ranked(written, ranking or Ranking(), _PROGRAMS)]
        best = min(program[3] for program in line["programs"])
        found.append([best / min(order[:count]) for count in (1, 4, 10)])
    return "  ".join(f"{geometric_mean(column):.3f}" for column in zip(*found, strict=True))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing, and print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", type=Path)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--networks", default=",".join(NETWORKS.values()))
    parser.add_argument("--tasks", type=int, default=3)
    parser.add_argument("--measured", type=Path, default=Path("ranking.jsonl"))
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    lines = (
        [json.loads(line) for line in chosen.measured.read_text().splitlines()]
        if chosen.measured.exists()
        else []
    )
    with connect("local") as device:
        profile = profile_of(device, 1)
    vocabulary = Vocabulary()
    model, _ = load_model(chosen.checkpoint, vocabulary)
    for network in chosen.networks.split(","):
        spaces = [space for _, _, space in spaces_of(chosen.models, [network], [profile.board])]
        random.Random(network).shuffle(spaces)
        for space in [one for one in spaces if one.rule.name in ("tiled", "winograd", "dot")][: chosen.tasks]:
            if any(line["task"] == space.task.workload_hash for line in lines):
                continue
            try:
                lines.append(measure(model, vocabulary, space, profile))
            except EdgeError as error:
                print(f"{network} {space.task.name}: {error}")
                continue
            with chosen.measured.open("a") as file:
                file.write(json.dumps(lines[-1]) + "\n")
            print(f"{network} {space.task.name}: {len(lines[-1]['programs'])} programs", flush=True)
    print(f"{len(lines)} tasks, {sum(len(line['programs']) for line in lines)} programs")
    print(f"first, best of 4, best of 10; by likelihood alone  {mean_speed(lines, None)}")
    for likelihood in _LIKELIHOODS:
        print(f"likelihood {likelihood:<5} {mean_speed(lines, Ranking(likelihood, 0.0))}")
    for variety in _VARIETIES:
        print(f"variety {variety:<8} {mean_speed(lines, Ranking(Ranking().likelihood, variety))}")


if __name__ == "__main__":
    main()
