"""Simulated boards whose true seconds and joules of every program are known, and tasks for them.

Power is that of a simulated board (`replay:`, docs/replay.md): idling, cores at work by the clock,
multiply-adds, and bytes of each level of memory. Time is the estimate for another processor. What the host
does not know, how values of decisions change time and the energy of multiply-adds, is drawn with a seed.
"""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from device_agent.simulation.board import POLICY, SimulatedBoard
from device_agent.simulation.scenario import Program, load
from host.compile.variants import picojoules_a_byte
from host.emulation.scenario import MachineTable, PowerTable, Scenario, ThermalTable, write_system
from host.errors import ScheduleError
from host.model import DeviceProfile
from host.schedules import DesignSpace, space_for
from host.schedules.work import work_of
from research.figures.finetuning import truth_of
from research.pretraining.boards import board_of
from research.pretraining.dataset import lowered_tasks
from research.pretraining.operators import draw_operator

# Programs of a pool that descend to better neighbours.
_DESCENTS = 3
# Programs that a space has at least.
_LEAST_PROGRAMS = 200
# Standard deviation of the preference between the values of a decision: in logarithms of time, so that times
# are as far from the estimate as on real machines (`spread_of`), and of joules of multiply-adds.
_TIME_PREFERENCE, _PREFERENCE = 0.15, 0.3
# A byte to or from memory, in picojoules: what those of other levels are counted in.
_BYTE_PJ = 60.0


@dataclass(frozen=True)
class BoardPower:
    """The power of one board in one power mode.

    Attributes:
        board: name of a declared board.
        clock: share of its full clock.
        idle_w: without work.
        core_w: of a core at work at full clock.
        multiply_add_pj: of a multiply-add in picojoules.
    """

    board: str
    clock: float
    idle_w: float
    core_w: float
    multiply_add_pj: float

    @property
    def name(self) -> str:
        """The board with its clock."""
        return f"{self.board}@{self.clock:g}"


# Estimates: boards whose idling is most of their power, and boards whose cores are.
BOARDS = (
    BoardPower("raspberry_pi_4", 1.0, 2.1, 0.9, 40.0),
    BoardPower("raspberry_pi_4", 0.5, 2.1, 0.9, 40.0),
    BoardPower("raspberry_pi_5", 1.0, 0.8, 2.0, 25.0),
    BoardPower("x86_64-v3", 1.0, 3.0, 9.0, 20.0),
    BoardPower("x86_64-v3", 0.5, 3.0, 9.0, 20.0),
)


class TrueBoard:
    """A simulated board.

    Args:
        power: of it.
        seed: of what the host does not know.
        folder: for the files of its sensors.
    """

    def __init__(self, power: BoardPower, seed: int, folder: Path) -> None:
        board = board_of(power.board)
        self.profile = DeviceProfile(power.name, board, board.hardware, board.hardware.cores)
        self._seed = f"{power.board}/{seed}"
        self._time = truth_of(seed, _TIME_PREFERENCE)
        self._board = _simulated(power, board.hardware.cores, board.hardware.frequency_hz, folder)
        self._known: dict[tuple[object, ...], tuple[float, float]] = {}

    def seconds_and_watts(self, space: DesignSpace, values: Mapping[str, int]) -> tuple[float, float]:
        """The true time of a call of a program, and the true power meanwhile."""
        key = (space.task.workload_hash, *values.values())
        if key not in self._known:
            full_s = self._time(space, dict(values))
            begin_s, begin_j = self._board.monotonic(), self._board.joules
            # A call may be shorter than the simulated clock resolves.
            calls = math.ceil(1e-3 / full_s)
            program = self._program(space, values)
            self._board.work(
                calls * full_s,
                program._replace(
                    multiply_adds=calls * program.multiply_adds,
                    bytes=calls * program.bytes,
                ),
            )
            passed_s = self._board.monotonic() - begin_s
            self._known[key] = (passed_s / calls, (self._board.joules - begin_j) / passed_s)
        return self._known[key]

    def cost(self, space: DesignSpace, values: Mapping[str, int], exponent: float) -> float:
        """The true cost of a program: seconds at 1 W."""
        seconds, watts = self.seconds_and_watts(space, values)
        return seconds * math.pow(watts, exponent)

    def _program(self, space: DesignSpace, values: Mapping[str, int]) -> Program:
        """What a program does: multiply-adds of its own energy, and the traffic of all levels of memory."""
        work, hardware = work_of(space, dict(values)), space.hardware
        parts = space.estimate_parts_s(dict(values))
        moved = work.bytes
        for level in hardware.levels[:-1]:
            seconds = parts.get(level.name, 0.0)
            share = picojoules_a_byte(hardware, level.name) / _BYTE_PJ
            moved += seconds * level.bandwidth_bytes_per_s * share
        dearer = 0.0
        for decision in space.decisions:
            preference = random.Random(f"{self._seed}/{decision.name}").gauss(0.0, _PREFERENCE)
            place = decision.choices.index(values[decision.name]) / max(1, len(decision.choices) - 1)
            dearer += preference * (place - 0.5)
        return Program(float(work.cores), work.multiply_adds * math.exp(dearer), moved)


def _simulated(power: BoardPower, cores: int, frequency_hz: float, folder: Path) -> SimulatedBoard:
    scenario = Scenario(
        schema="edgetlm-replay/1",
        machine=MachineTable(frequency_hz=frequency_hz, frequencies_hz=(power.clock * frequency_hz,)),
        power=PowerTable(
            idle_w=power.idle_w,
            active_w=power.idle_w + cores * power.core_w,
            core_w=power.core_w,
            multiply_add_pj=power.multiply_add_pj,
            byte_pj=_BYTE_PJ,
        ),
        # It throttles at no load: what a program takes does not depend on those before it.
        thermal=ThermalTable(resistance_c_per_w=0.0),
    )
    write_system(scenario, folder)
    (folder / POLICY / "scaling_max_freq").write_text(f"{round(power.clock * frequency_hz / 1e3)}\n")
    file = folder / "scenario.json"
    file.write_text(json.dumps({**scenario.for_agent(), "cores": cores}))
    return SimulatedBoard(load(str(file)), str(folder), str(folder), cores)


def tasks_for(board: TrueBoard, seed: int, count: int) -> list[DesignSpace]:
    """Random tasks of a board with all its threads, each with about the same share of a model's time."""
    profile, found = board.profile, list[DesignSpace]()
    generator = random.Random(f"energy/{profile.board.name}/{seed}")
    known: set[str] = set()
    while len(found) < count:
        for task in lowered_tasks(draw_operator(generator), profile.board):
            try:
                space = space_for(task, profile.hardware, profile.threads)
                first = space.sample(random.Random(seed), attempts=2000)
            except ScheduleError:
                continue  # no rule has programs for it
            programs = math.prod(len(decision.choices) for decision in space.decisions)
            if programs < _LEAST_PROGRAMS or task.workload_hash in known:
                continue
            known.add(task.workload_hash)
            weight = max(1, round(1.0 / space.estimate_s(first)))
            name = f"task{len(found)}"
            found.append(replace(space, task=replace(task, name=name, weight=weight)))
    return found[:count]


def best(
    board: TrueBoard, space: DesignSpace, known: Sequence[Mapping[str, int]], exponent: float, drawn: int
) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """The programs of the least true cost: of random ones, and of what descends from these and known ones.

    Args:
        board: of the truth.
        space: of the task.
        known: programs that belong to the pool.
        exponent: of watts in the cost.
        drawn: random programs.
    """
    generator = random.Random(f"pool/{space.task.workload_hash}")

    def cost(values: Mapping[str, int]) -> float:
        return board.cost(space, values, exponent)

    chance = [space.sample(generator, attempts=20_000) for _ in range(drawn)]
    pool = sorted([*known, *chance], key=cost)
    ends = []
    for start in pool[:_DESCENTS]:
        here = start
        while True:
            following = min(space.neighbours(dict(here)), key=cost, default=here)
            if cost(following) >= cost(here):
                break
            here = following
        ends.append(here)
    return min(chance, key=cost), min(ends, key=cost)


def spread_of(board: TrueBoard, space: DesignSpace, drawn: int) -> float:
    """Standard deviation of the logarithm of true over estimated time, of random programs of one task."""
    generator = random.Random(f"spread/{space.task.workload_hash}")
    programs = [space.sample(generator, attempts=20_000) for _ in range(drawn)]
    return statistics.pstdev(
        math.log(board.seconds_and_watts(space, one)[0] / space.estimate_s(one)) for one in programs
    )
