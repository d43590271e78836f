"""The programs of each arm for the tasks of a network on a board."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.modelled_boards.draws import Program, by_chance, random_programs, written
from benchmarks.modelled_boards.figures import Judged
from benchmarks.modelled_boards.judging import Judge
from host.errors import EdgeError, ScheduleError
from host.gensor import Gensor
from host.importers import load_here as load
from host.learned_estimate.observation import values_of
from host.lowering import lower
from host.model import DeviceProfile
from host.options.numeric_types import half_of
from host.schedules import DesignSpace, space_for
from host.tlm.proposer import Tlm
from research.modelled_boards.boards import modelled_board
from research.modelled_boards.timer import ModelledTimer
from research.pretraining.boards import board_of
from targets import Board

# Of boards whose programs a model of the processor times.
MODELLED = "-modelled"


def board_named(name: str) -> Board:
    """A board by its name here: declared, its GPU, or modelled."""
    if name.endswith(MODELLED):
        return modelled_board(name.removesuffix(MODELLED)).declaration()
    return board_of(name.split("-gpu")[0], "-gpu" in name)


def spaces_of(path: Path, name: str, count: int, most_flop: float) -> tuple[Board, list[DesignSpace]]:
    """Design spaces of some tasks of a network on a board, chosen by their hash; large tasks are left out."""
    board = board_named(name)
    half = half_of("fp16" if name.endswith("-fp16") else "fp32")
    spaces = []
    for task in lower(load(path, golden_cases=1), board, half=half).tasks:
        try:
            spaces.append(space_for(task, board.hardware, 1))
        except ScheduleError:
            continue
    spaces = [space for space in spaces if space.decisions and space.task.flops <= most_flop]
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
        most_flop: of a task.
    """

    folders: Mapping[str, str]
    files: Path
    pairs: Sequence[tuple[str, str]]
    tasks: int
    seeds: int
    most_flop: float

    def __call__(self, number: int) -> list[Judged]:
        """Seconds of each arm for the tasks of one pair: estimated, or of a model of the processor."""
        network, name = self.pairs[number]
        models = {one: Tlm(Path(folder)) for one, folder in self.folders.items()}
        board, spaces = spaces_of(self.files / f"{network}.onnx", name, self.tasks, self.most_flop)
        found = []
        with tempfile.TemporaryDirectory(prefix="edgetlm-") as folder:
            judge = None
            if name.endswith(MODELLED):
                judge = Judge(ModelledTimer(modelled_board(name.removesuffix(MODELLED)), Path(folder)))
            for space in spaces:
                try:
                    arms = arms_of(space, board, models, self.seeds)
                except EdgeError as error:
                    print(f"{network} {space.task.name} on {name} is left out: {error}", flush=True)
                    continue
                for chosen in arms:
                    if judge is None:
                        seconds = {arm: space.estimate_s(values) for arm, values in chosen.items()}
                    else:
                        seconds = judge.seconds(space, chosen)
                    key = space.task.workload_hash
                    found.append(Judged(name, network, key, space.rule.name, seconds))
        return found


def arms_of(
    space: DesignSpace, board: Board, models: Mapping[str, Tlm], seeds: int
) -> list[dict[str, Program]]:
    """Each arm's program, by seed.

    Raises:
        EdgeError: the space has no legal program, or a model's language cannot express the task.
    """
    profile = DeviceProfile("written", board, board.hardware, space.threads)
    constructed = values_of(Gensor().propose(space, profile, [], 1, 0)[0])
    arms = []
    for seed in range(seeds):
        found = {"gensor": constructed, "random": random_programs(space, seed)[0]}
        for arm, programs in by_chance(space, {"t": DesignSpace.estimate_s}, seed).items():
            found[arm.removesuffix("_t")] = programs[0]
        for name, model in models.items():
            found[f"{name}_likelihood"] = written(model, space, profile, None, seed)[0]
            found[f"{name}_tlm32"] = written(model, space, profile, DesignSpace.estimate_s, seed)[0]
        arms.append(found)
    return arms
