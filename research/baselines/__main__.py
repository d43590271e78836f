"""Searched baselines of the held-out networks: `python -m research.baselines --networks NAME,...`.

For each network, MetaSchedule searches the fewest tasks that take 70% of its time, with one thread and 256
trials each; then the search of one task of every kind continues to 1,000 trials. An interrupted search
continues from its records, and a task of two networks is searched once. The results lie beside this file, one
file for each network, and `sdk tlm evaluate` reads them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from host.build import target_for
from host.compile.device_profile import profile_of
from host.errors import EdgeError, UserError
from host.model import DeviceProfile, Task
from host.transport import connect
from research.baselines.logged_search import LoggedRunner, history_of, search_task, stage_path
from research.baselines.tasks import Network, kind_of, network_of, tasks_of
from research.evaluation.baseline import Baseline, BaselineTask, write_baseline
from research.evaluation.bench import MeasurePlan, open_bench, restricted
from research.machine import machine_of
from research.metaschedule import register_intrinsics

FOLDER = Path(__file__).parent
_LONG = 1000
# Of which one task each goes on to so many trials.
KINDS = ("convolution", "depthwise", "matmul", "batched_matmul", "gemv", "reduction")
_TIME_LIMIT_S = 60.0


@dataclass(frozen=True, eq=False)
class SearchSetup:
    """The device, the folders and the options of the searches."""

    profile: DeviceProfile
    runner: LoggedRunner
    records: Path
    trials: int
    seed: int

    def folder(self, task: Task) -> Path:
        """Records of a task: by its hash alone, whichever network it is of."""
        return self.records / "metaschedule" / f"{task.workload_hash}-{self.profile.threads}"

    def search(self, task: Task, trials: int) -> None:
        """Search a task up to so many trials."""
        search_task(
            task,
            target_for(self.profile.board),
            self.profile.threads,
            self.runner,
            self.folder(task),
            trials,
            self.seed,
        )


def longest(networks: Sequence[Network]) -> list[tuple[Network, Task]]:
    """One task of each kind for the long search: the one with the greatest share of its network."""
    found: dict[str, tuple[float, Network, Task]] = {}
    for network in networks:
        for task in network.tasks:
            kind, share = kind_of(task), network.share(task)
            if kind in KINDS and (kind not in found or share > found[kind][0]):
                found[kind] = (share, network, task)
    return [(network, task) for _, network, task in found.values()]


def packed(network: Network, setup: SearchSetup, about: Mapping[str, Any]) -> Baseline:
    """The recorded baseline of a network."""
    chosen = {task.workload_hash for task in network.chosen}
    beside = [
        task
        for task in network.tasks
        if task.workload_hash not in chosen and stage_path(setup.folder(task), _LONG).is_file()
    ]
    return Baseline(
        network=network.name,
        trials=setup.trials,
        threads=setup.profile.threads,
        target=dict(setup.profile.board.tvm_target),
        machine=about,
        coverage=network.coverage,
        network_s=network.total_s,
        tasks=tuple(_packed_task(network, task, setup) for task in network.chosen),
        beside=tuple(_packed_task(network, task, setup) for task in beside),
    )


def _packed_task(network: Network, task: Task, setup: SearchSetup) -> BaselineTask:
    folder = setup.folder(task)
    stages = [trials for trials in (setup.trials, _LONG) if stage_path(folder, trials).is_file()]
    return BaselineTask(
        task=task,
        kind=kind_of(task),
        share=network.share(task),
        constructed_s=network.seconds[task.workload_hash],
        searches={trials: history_of(task, folder, trials) for trials in stages},
    )


@contextmanager
def _setup(options: argparse.Namespace, profile: DeviceProfile) -> Iterator[SearchSetup]:
    with (
        connect("local") as device,
        device.open_session("tvm", profile.threads, time_limit_s=_TIME_LIMIT_S) as session,
        LoggedRunner(session) as runner,
    ):
        yield SearchSetup(profile, runner, options.records, options.trials, options.seed)


def choose_tasks(options: argparse.Namespace) -> tuple[DeviceProfile, list[Network]]:
    """Lower the networks and measure the share of each task."""
    networks = []
    with connect("local") as device, tempfile.TemporaryDirectory(prefix="edgetlm-baselines-") as folder:
        profile = restricted(profile_of(device, threads=1), device.describe(), options.restrict)
        with open_bench(device, profile, Path(folder), MeasurePlan()) as bench:
            for name in options.networks.split(","):
                path = options.models / f"{name}.onnx"
                if not path.is_file():
                    raise UserError(
                        f"{path} does not exist: make it with `python -m research.models.export {name} "
                        f"-o {options.models} --format onnx`"
                    )
                known = options.records / "shares" / f"{name}.json"
                network = network_of(name, tasks_of(path, profile), bench, known, options.coverage)
                networks.append(network)
                print(
                    f"{name}: {len(network.chosen)} of {len(network.seconds)} tasks have "
                    f"{network.coverage:.1%} of {network.total_s * 1e3:.1f} ms",
                    flush=True,
                )
    return profile, networks


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Search the tasks; returns the recorded baselines."""
    with connect("local") as device:
        about = machine_of(device)
    profile, networks = choose_tasks(options)
    summary: dict[str, Any] = {"trials": options.trials, "machine": about, "networks": {}}
    with _setup(options, profile) as setup:
        for network in networks:
            for number, task in enumerate(network.chosen, 1):
                _searched(network, task, setup, setup.trials, f"{number}/{len(network.chosen)}")
            _write(network, setup, about, options.out, summary)
        for network, task in longest(networks) if options.long else ():
            for trials in (setup.trials, _LONG):
                _searched(network, task, setup, trials, kind_of(task))
            for other in networks:
                if task.workload_hash in {one.workload_hash for one in other.tasks}:
                    _write(other, setup, about, options.out, summary)
    return summary


def _searched(network: Network, task: Task, setup: SearchSetup, trials: int, label: str) -> None:
    """Search a task and print the result."""
    setup.search(task, trials)
    history = history_of(task, setup.folder(task), trials)
    print(
        f"{network.name} {label} {task.name}: best {history.by_trial[-1][1] * 1e6:.1f} us, Gensor's "
        f"{network.seconds[task.workload_hash] * 1e6:.1f} us, {history.trials} trials, "
        f"{history.failed} failed, {history.wall_s:.0f} s, {history.cpu_s:.0f} s of the processor",
        flush=True,
    )


def _write(
    network: Network, setup: SearchSetup, about: Mapping[str, Any], folder: Path, summary: dict[str, Any]
) -> None:
    baseline = packed(network, setup, about)
    path = write_baseline(baseline, folder)
    histories = [entry.searches[setup.trials] for entry in baseline.tasks]
    summary["networks"][network.name] = {
        "coverage": network.coverage,
        "tasks": len(histories),
        "wall_s": sum(history.wall_s for history in histories),
        "cpu_s": sum(history.cpu_s for history in histories),
    }
    print(f"{path}: {path.stat().st_size / 1e3:.0f} KB", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Searches programs for networks and writes their records."""
    parser = argparse.ArgumentParser(prog="python -m research.baselines", description=__doc__)
    parser.add_argument("--networks", default="mobilenetv2,resnet50,bert-base,gpt2", help="names in the zoo")
    parser.add_argument("--trials", type=int, default=256, help="of each search")
    parser.add_argument("--coverage", type=float, default=0.7, help="share of a network's time to search")
    parser.add_argument("--records", type=Path, default=Path("edgetlm-out/network-records"))
    parser.add_argument(
        "--models", type=Path, default=Path("edgetlm-out/models"), help="folder of the networks' ONNX files"
    )
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the packed files")
    parser.add_argument("--no-long", dest="long", action="store_false", help=f"leave out the {_LONG} trials")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--restrict", default="", help="part of the processor that is used: avx2")
    parser.add_argument("--json", type=Path, help="where a summary goes")
    options = parser.parse_args(arguments)
    # Equal functions are other tasks where the compiler may use less of the processor.
    options.records = options.records / options.restrict
    try:
        # Slow the more modules are loaded, so before anything else of TVM's search.
        with connect("local") as device:
            register_intrinsics(profile_of(device, threads=1).board.architecture)
        summary = run(options)
    except EdgeError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, UserError) else 1
    if options.json is not None:
        options.json.write_text(json.dumps(summary, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
