"""Programs over a range of a family whose decisions have names that nobody else knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

import pytest
import tvm_ffi

from host.dynamic import kernels, range_programs
from host.dynamic.kernels import Kernel, kernel_over
from host.dynamic.request import Dimension
from host.dynamic.template import unify
from host.model import DeviceProfile, Task
from host.schedules import DesignSpace
from host.schedules.api import CPU, PARALLEL, Decision, Decisions, Rule, Sampler
from host.schedules.cpu.tiled.lengths import TiledLengths
from host.schedules.cpu.tiled.rule import Tiled
from host.schedules.families import space_for
from host.schedules.length_tiling import LengthTile, LengthTiling, TileDesign
from host.schedules.workload import Workload
from targets import HardwareModel
from tests.unit.schedules import functions

_TILED = Tiled()


def _own(values: Mapping[str, int]) -> dict[str, int]:
    return {name if name == PARALLEL.name else f"own_{name}": value for name, value in values.items()}


def _of_tiled(values: Mapping[str, int]) -> dict[str, int]:
    return {name.removeprefix("own_"): value for name, value in values.items()}


@dataclass(frozen=True)
class _OwnLengths(LengthTiling):
    tiled: TiledLengths

    @classmethod
    def between(cls, shorter: Workload, longer: Workload, hardware: HardwareModel) -> Self:
        return cls(TiledLengths.between(shorter, longer, hardware))

    def designs(self, hardware: HardwareModel) -> Iterator[TileDesign]:
        return (replace(design, decisions=_own(design.decisions)) for design in self.tiled.designs(hardware))

    def untiled(self) -> Mapping[str, int]:
        return _own(self.tiled.untiled())

    def tile(self, values: Mapping[str, int], hardware: HardwareModel) -> LengthTile:
        return self.tiled.tile(_of_tiled(values), hardware)

    def decisions_at(self, values: Mapping[str, int], length: int) -> Mapping[str, int]:
        return _own(self.tiled.decisions_at(_of_tiled(values), length))


class _Own(Rule):
    """`tiled` under other names."""

    name = "own"
    processor = CPU
    version = 1
    priority = 1
    decisions = tuple(replace(kind, name=f"own_{kind.name}") for kind in Tiled.decisions)
    length_tiling = _OwnLengths

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        return _TILED.matches(workload, hardware)

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        found = _TILED.choices(workload, hardware)
        return {f"own_{name}": choices for name, choices in found.items()}

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        return _TILED.legal(workload, hardware, _of_tiled(values))

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        values = _of_tiled(sampler.values)
        kinds = [kind for kind in Tiled.decisions if kind.name in values]
        decisions = tuple(Decision(kind, (values[kind.name],)) for kind in kinds)
        _TILED.apply(Sampler(sampler.schedule, decisions, values), workload, hardware, threads)

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        return _TILED.estimate_s(workload, hardware, threads, _of_tiled(values))


def _kernel() -> Kernel:
    board = functions.board("avx2")
    profile = DeviceProfile("test", board, board.hardware, 2)
    template = unify({n: functions.batched(2, n, n, 8) for n in (37, 59, 97, 151)}, "scores")
    return kernel_over("scores", template, Dimension("n", 1, 64, {}), profile, 0)


def test_no_decision_of_a_family_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = _kernel()
    assert usual.rule == "tiled"
    own_rules = (_Own(),)

    def own_space(task: Task, hardware: HardwareModel, threads: int = 1) -> DesignSpace:
        return space_for(task, hardware, threads, own_rules)

    for module in (kernels, range_programs):
        monkeypatch.setattr(module, "space_for", own_space)
    own = _kernel()
    assert own.rule == "own", own.reason
    assert dict(own.decisions or {}) == _own(dict(usual.decisions or {}))
    assert own.programs == usual.programs
    assert tvm_ffi.structural_equal(own.function, usual.function)
