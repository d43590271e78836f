"""The order of programs by T_hat after ten records a task: `python -m benchmarks.learned_estimate.order`.

    python -m benchmarks.learned_estimate.order --data FILE... [--records N] [--seeds N] [--json F]

Each FILE has measured programs of one board (`sdk tlm collect`, `python -m research.collection.in_model`,
`python -m research.modelled_boards`). Of each task ten programs are drawn that teach, or half of them where
there are fewer than 20; the figure is Spearman's correlation of an estimate with the times of the others,
which nothing has seen. Records of other networks, `--records` of them without any task of this one, teach as
well, as they do in a tuning:

    t           the estimate
    others      T_hat, taught by the records of other networks alone
    ten         T_hat, taught by them and by ten programs of the task: what the target asks for
    ten_alone   T_hat, taught by the ten programs alone
    shuffled    as `ten`, where all times are shuffled within each task
    repeated    no estimate: the times of one half of the rounds beside those of the other half, which is what
                noise leaves of any order; of tasks that were measured in four rounds or more

A vector product is a dense product of whose programs none computes more than one row. Tasks where all times
or all estimates are equal have no order, and are left out of that arm. Nothing is timed here.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.headroom import kind_of
from benchmarks.learned_estimate.withheld import observations_of, shuffled
from benchmarks.result_file import add_json_option, heading, write_result
from host.learned_estimate.observation import Observation
from host.learned_estimate.process import RuleProcess
from host.statistics import MIN_TRIALS, t975
from research.collection.dataset import MeasuredProgram, read_programs
from research.estimate.withheld import spearman

SCHEMA = "edgetlm.learned_order/1"
ARMS = ("t", "others", "ten", "ten_alone", "shuffled", "repeated")
TARGET = 0.85
_OWN, _LEAST_PROGRAMS, _LEAST_ROUNDS = 10, 8, 4
_DENSE, _VECTOR = "dense product", "vector product"
_ROWS = ("rows", "rows2", "block", "block2")
ALL = "all"


@dataclass(frozen=True, eq=False)
class OrderedTask:
    """The measured programs of one task, each once, in an order without meaning.

    Attributes:
        model, kind: where it belongs.
        measured: the programs; of one that was measured several times the first measurement.
    """

    model: str
    kind: str
    measured: tuple[MeasuredProgram, ...]


def ordered_tasks(programs: Sequence[MeasuredProgram]) -> list[OrderedTask]:
    """The tasks of a file with enough different programs."""
    by_task: dict[tuple[str, str], dict[object, MeasuredProgram]] = defaultdict(dict)
    for one in programs:
        by_task[one.model, one.task].setdefault(one.decided, one)
    found = []
    for (model, task), known in sorted(by_task.items()):
        if len(known) >= _LEAST_PROGRAMS:
            measured = list(known.values())
            random.Random(f"{task}/order").shuffle(measured)
            found.append(OrderedTask(model, _kind(measured), tuple(measured)))
    return found


def _kind(measured: Sequence[MeasuredProgram]) -> str:
    kind = kind_of(measured[0].name)
    rows = max(one.decisions.get(name, 1) for one in measured for name in _ROWS)
    return _VECTOR if kind == _DENSE and rows <= 1 else kind


class Teaching:
    """The records of other networks that teach about the tasks of one.

    Args:
        programs: of the board.
        tasks: of the network that is judged.
        records: how many teach.
        seed: of their choice.
    """

    def __init__(
        self, programs: Sequence[MeasuredProgram], tasks: Sequence[OrderedTask], records: int, seed: int
    ) -> None:
        model, held = tasks[0].model, {one.measured[0].task for one in tasks}
        known = [one for one in programs if one.model != model and one.task not in held]
        drawn = random.Random(f"{model}/{seed}").sample(known, min(records, len(known)))
        self._by_rule: dict[str, list[Observation]] = defaultdict(list)
        for one in observations_of(drawn):
            self._by_rule[one.rule].append(one)
        self._processes = {rule: RuleProcess(known) for rule, known in self._by_rule.items()}

    def of(self, rule: str) -> list[Observation]:
        """Those of one rule."""
        return self._by_rule.get(rule, [])

    def process(self, rule: str) -> RuleProcess | None:
        """What they teach; None where there are none."""
        return self._processes.get(rule)


def orders_of(task: OrderedTask, teaching: Teaching, seed: int) -> dict[str, float]:
    """Spearman's correlation of each arm with the times of the programs that taught nothing.

    Args:
        task: with its programs.
        teaching: records of other networks.
        seed: of the programs that teach, and of shuffled times.
    """
    own = observations_of(task.measured)
    others, alone = teaching.of(own[0].rule), teaching.process(own[0].rule)
    drawn = random.Random(f"{own[0].program.task}/{seed}").sample(range(len(own)), len(own))
    count = min(_OWN, len(own) // 2)
    taught, judged = [own[one] for one in drawn[:count]], [own[one] for one in drawn[count:]]
    known = [*others, *taught]
    teach = {"ten": known, "ten_alone": taught, "shuffled": shuffled(known, seed)}
    programs = [one.program for one in judged]
    estimates = {arm: RuleProcess(some).predict(programs).mean for arm, some in teach.items()}
    if alone is not None:
        estimates["others"] = alone.predict(programs).mean
    estimates["t"] = np.log([one.estimate_s for one in programs])
    times = np.array([one.seconds for one in judged])
    found = {arm: spearman(values, times) for arm, values in estimates.items()}
    rounds = [task.measured[one].times_s for one in drawn[count:]]
    if min(map(len, rounds)) >= _LEAST_ROUNDS:
        found["repeated"] = spearman(*(np.array([min(one[half::2]) for one in rounds]) for half in (0, 1)))
    return {arm: value for arm, value in found.items() if not math.isnan(value)}


def figure(values: Sequence[float]) -> dict[str, Any]:
    """Mean over tasks with its 95% interval, median, and how many tasks reach the target."""
    mean = statistics.fmean(values)
    half = None
    if len(values) >= MIN_TRIALS:
        half = t975(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return {
        "mean": round(mean, 3),
        "low": None if half is None else round(mean - half, 3),
        "high": None if half is None else round(mean + half, 3),
        "median": round(statistics.median(values), 3),
        "reached": sum(value >= TARGET for value in values),
        "tasks": len(values),
    }


def figures_of(orders: Mapping[tuple[str, str, str], Mapping[str, float]]) -> dict[str, Any]:
    """Each arm's figures by kind, over all kinds, and by board.

    Args:
        orders: by board, kind and task the mean correlation of each arm.
    """

    def of(part: int, name: str) -> dict[str, Any]:
        own = [arms for key, arms in orders.items() if name in (key[part], ALL)]
        values = {arm: [one[arm] for one in own if arm in one] for arm in ARMS}
        return {arm: figure(known) for arm, known in values.items() if known}

    kinds, boards = ({key[part] for key in orders} for part in (1, 0))
    return {
        "kinds": {kind: of(1, kind) for kind in (*sorted(kinds), ALL)},
        "boards": {board: of(0, board) for board in sorted(boards)},
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Judge the order of the programs of every task and print the figures."""
    parser = argparse.ArgumentParser(prog="benchmarks.learned_estimate.order", description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", required=True, metavar="FILE")
    parser.add_argument("--records", type=int, default=200, help="of other networks that teach")
    parser.add_argument("--seeds", type=int, default=3, help="draws of the records that teach")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    about = heading("benchmarks.learned_estimate.order", SCHEMA, arguments)
    logs: dict[tuple[str, str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for path in options.data:
        board = path.name.partition(".")[0]
        programs = list(read_programs(path))
        by_model: dict[str, list[OrderedTask]] = defaultdict(list)
        for task in ordered_tasks(programs):
            by_model[task.model].append(task)
        for model, tasks in sorted(by_model.items()):
            for seed in range(options.seeds):
                teaching = Teaching(programs, tasks, options.records, seed)
                for task in tasks:
                    first = task.measured[0]
                    key = (board, task.kind, f"{model}/{first.task}")
                    for arm, value in orders_of(task, teaching, seed).items():
                        logs[key][arm].append(value)
            print(board, model, len(tasks), "tasks", flush=True)
    means = {key: {arm: statistics.fmean(one) for arm, one in arms.items()} for key, arms in logs.items()}
    figures = {"records": options.records, "seeds": options.seeds, "target": TARGET, **figures_of(means)}
    write_result(options.json, about | figures)
    for part in ("kinds", "boards"):
        for name, arms in figures[part].items():
            print(name, {arm: (one["mean"], one["median"], one["tasks"]) for arm, one in arms.items()})


if __name__ == "__main__":
    main()
