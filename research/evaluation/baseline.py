"""Files of searched baselines: the longest tasks of a network, with the best programs of a search.

A file has everything that a comparison needs: the tasks' functions, MetaSchedule's records of the best
programs, and the history of each search. Neither the network's model file nor the search is needed.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from host.compile.stored_tasks.file import packed_function, unpacked_function
from host.errors import EdgeError, UserError
from host.model import Task

SCHEMA = "edgetlm.baseline/1"
SUFFIX = ".json.gz"
MAKE = "python -m research.baselines --networks"


@dataclass(frozen=True)
class Improvement:
    """A program that was faster than all earlier ones.

    Attributes:
        wall_s, cpu_s: wall time and processor time of all processes since the search began.
        seconds: of one call of the program, as the search measured it.
    """

    wall_s: float
    cpu_s: float
    seconds: float


@dataclass(frozen=True)
class SearchHistory:
    """One search of one task.

    Attributes:
        trials: number of recorded programs; fewer than requested if a task has no more.
        failed: number of those that did not build or run.
        wall_s, cpu_s: of the whole search.
        by_trial: number of the trial and seconds of each program that was faster than all earlier ones.
        by_time: the same with times instead of trials.
        records: MetaSchedule's records of the best programs in plain data, fastest first.
    """

    trials: int
    failed: int
    wall_s: float
    cpu_s: float
    by_trial: tuple[tuple[int, float], ...]
    by_time: tuple[Improvement, ...]
    records: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class BaselineTask:
    """A task that was searched.

    Attributes:
        task: its weight is the number of calls in one run of the network.
        kind: "convolution", "matmul", ...
        share: of the network's time.
        constructed_s: of one call of the program that Gensor constructs, by which the share was found.
        searches: histories by number of trials.
    """

    task: Task
    kind: str
    share: float
    constructed_s: float
    searches: Mapping[int, SearchHistory]


@dataclass(frozen=True, eq=False)
class Baseline:
    """The searched tasks of one network.

    Attributes:
        network: its name.
        trials: of the search that every task has.
        threads: of every program.
        target: TVM's, in plain data.
        machine: where it was searched, with versions.
        coverage: share of the network's time that the tasks have.
        network_s: seconds of all tasks of the network with Gensor's programs.
        tasks: in the order of their share, the largest first.
        beside: further tasks that were searched for longer as examples of their kind; they are in no figure
            of the network.
    """

    network: str
    trials: int
    threads: int
    target: Mapping[str, Any]
    machine: Mapping[str, Any]
    coverage: float
    network_s: float
    tasks: tuple[BaselineTask, ...]
    beside: tuple[BaselineTask, ...] = ()

    @property
    def name(self) -> str:
        """Name of the search in the figures."""
        return f"metaschedule-{self.trials}"


def write_baseline(baseline: Baseline, folder: Path) -> Path:
    """Write a network's file; the same content gives the same bytes."""
    content = {
        "schema": SCHEMA,
        "network": baseline.network,
        "trials": baseline.trials,
        "threads": baseline.threads,
        "target": dict(baseline.target),
        "machine": dict(baseline.machine),
        "coverage": baseline.coverage,
        "network_s": baseline.network_s,
        "tasks": [_task_data(entry) for entry in baseline.tasks],
        "beside": [_task_data(entry) for entry in baseline.beside],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{baseline.network}{SUFFIX}"
    path.write_bytes(gzip.compress((json.dumps(content) + "\n").encode(), 9, mtime=0))
    return path


def read_baseline(folder: Path, network: str) -> Baseline:
    """Read a network's file.

    Raises:
        UserError: there is no such file; the message says how to make it.
        EdgeError: the file is damaged or has another schema.
    """
    path = folder / f"{network}{SUFFIX}"
    if not path.is_file():
        raise UserError(f"{path} does not exist: make it with `{MAKE} {network}`, or give --baselines DIR")
    try:
        content = json.loads(gzip.decompress(path.read_bytes()))
        if content["schema"] != SCHEMA:
            raise ValueError(f"schema {content['schema']!r} instead of {SCHEMA!r}")
        return Baseline(
            network=str(content["network"]),
            trials=int(content["trials"]),
            threads=int(content["threads"]),
            target=dict(content["target"]),
            machine=dict(content["machine"]),
            coverage=float(content["coverage"]),
            network_s=float(content["network_s"]),
            tasks=tuple(_task(entry, int(content["trials"])) for entry in content["tasks"]),
            beside=tuple(_task(entry, int(content["trials"])) for entry in content["beside"]),
        )
    except (
        OSError,
        EOFError,
        KeyError,
        TypeError,
        ValueError,
        RuntimeError,
        AttributeError,
        zlib.error,
    ) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise EdgeError(f"{path} is damaged ({reason}): make it again with `{MAKE} {network}`") from error


def baseline_names(folder: Path) -> tuple[str, ...]:
    """Names of the networks with a file in the folder."""
    return tuple(sorted(path.name.removesuffix(SUFFIX) for path in folder.glob(f"*{SUFFIX}")))


def _task_data(entry: BaselineTask) -> dict[str, Any]:
    return {
        "name": entry.task.name,
        "workload_hash": entry.task.workload_hash,
        "weight": entry.task.weight,
        "flops": entry.task.flops,
        "kind": entry.kind,
        "share": entry.share,
        "constructed_s": entry.constructed_s,
        "function": packed_function(entry.task.function),
        "searches": {str(trials): asdict(history) for trials, history in entry.searches.items()},
    }


def _task(entry: Mapping[str, Any], trials: int) -> BaselineTask:
    from host.lowering.tasks import workload_hash

    function = unpacked_function(entry["function"])
    if workload_hash(function) != entry["workload_hash"]:
        raise ValueError(f"the function of {entry['name']} is another than its hash says")
    searches = {int(number): _history(history) for number, history in entry["searches"].items()}
    if trials not in searches or not searches[trials].records or not searches[trials].by_time:
        raise ValueError(f"{entry['name']} has no program of {trials} trials")
    return BaselineTask(
        task=Task(
            str(entry["name"]),
            function,
            int(entry["weight"]),
            str(entry["workload_hash"]),
            float(entry["flops"]),
        ),
        kind=str(entry["kind"]),
        share=float(entry["share"]),
        constructed_s=float(entry["constructed_s"]),
        searches=searches,
    )


def _history(content: Mapping[str, Any]) -> SearchHistory:
    plain = dict(content)
    by_trial = tuple((int(trial), float(seconds)) for trial, seconds in plain.pop("by_trial"))
    by_time = tuple(Improvement(**one) for one in plain.pop("by_time"))
    return SearchHistory(by_trial=by_trial, by_time=by_time, records=tuple(plain.pop("records")), **plain)
