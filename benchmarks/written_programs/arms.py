"""The programs of each arm for the tasks of a network on a board."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.modelled_boards.choices import DRAWN, random_programs
from benchmarks.modelled_boards.figures import Judged
from host.errors import EdgeError, ScheduleError
from host.gensor import Gensor
from host.importers import load_here as load
from host.learned_estimate.observation import values_of
from host.lowering import lower
from host.model import DeviceProfile
from host.options.compile import half_of
from host.schedules import DesignSpace, space_for
from host.tlm.proposer import Tlm
from research.pretraining.boards import board_of
from targets import Board


def spaces_of(path: Path, name: str, count: int) -> tuple[Board, list[DesignSpace]]:
    """Design spaces of some tasks of a network on a board, chosen by their hash."""
    board = board_of(name.split("-gpu")[0], "-gpu" in name)
    half = half_of("fp16" if name.endswith("-fp16") else "fp32")
    spaces = []
    for task in lower(load(path, golden_cases=1), board, half=half).tasks:
        try:
            spaces.append(space_for(task, board.hardware, 1))
        except ScheduleError:
            continue
    spaces = [space for space in spaces if space.decisions]
    spaces.sort(key=lambda space: space.task.workload_hash)
    random.Random(0).shuffle(spaces)
    return board, spaces[:count]


@dataclass(frozen=True)
class Work:
    """What is judged: each pair of a network and a board is a piece of its own.

    Attributes:
        folders: of the models, by name.
        files: folder of the networks' ONNX files.
        pairs: networks and names of boards.
        tasks: of each pair, at most.
        seeds: how many.
    """

    folders: Mapping[str, str]
    files: Path
    pairs: Sequence[tuple[str, str]]
    tasks: int
    seeds: int

    def __call__(self, number: int) -> list[Judged]:
        """Estimated seconds of each arm for the tasks of one pair."""
        network, name = self.pairs[number]
        # Without an estimate the likeliest program comes first.
        models = {one: Tlm(Path(folder)) for one, folder in self.folders.items()}
        board, spaces = spaces_of(self.files / f"{network}.onnx", name, self.tasks)
        found = []
        for space in spaces:
            try:
                arms = arms_of(space, board, models, self.seeds)
            except EdgeError as error:
                print(f"{network} {space.task.name} on {name} is left out: {error}", flush=True)
                continue
            key, rule = space.task.workload_hash, space.rule.name
            found += [Judged(name, network, key, rule, seconds) for seconds in arms]
        return found


def arms_of(
    space: DesignSpace, board: Board, models: Mapping[str, Tlm], seeds: int
) -> list[dict[str, float]]:
    """Estimated seconds of each arm's program, by seed.

    Raises:
        EdgeError: the space has no legal program, or a model's language cannot express the task.
    """
    profile = DeviceProfile("written", board, board.hardware, space.threads)
    constructed = Gensor().propose(space, profile, [], 1, 0)[0].estimate_s
    arms = []
    for seed in range(seeds):
        drawn = [space.estimate_s(values) for values in random_programs(space, seed)]
        found = {"gensor": constructed, "random": drawn[0], "random32": min(drawn)}
        for name, model in models.items():
            written = [values_of(one) for one in model.propose(space, profile, (), DRAWN, seed=seed)]
            estimates = [space.estimate_s(values) for values in written]
            found[f"{name}_likelihood"], found[f"{name}_tlm32"] = estimates[0], min(estimates)
        arms.append(found)
    return arms
