"""Parameters of the estimates: constants that rules declare, and figures of the hardware model.

Constants are fitted by hand on one processor, figures are what a processor states or a calibration finds.
What other boards measure moves both. A parameter moved by m, 0 without measurements, is

    neutral + (value - neutral) exp(m),   m ~ N(0, spread^2) before anything is measured

and `HardwareModel.learned` holds the moves. Only estimates read them: what is legal, what is open and how a
board is described stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from targets import HardwareModel


@dataclass(frozen=True)
class EstimateConstant:
    """A constant of a rule's estimate.

    Attributes:
        name: with the rule's name in front; part of what is stored of a board.
        value: without measurements.
        neutral: value that takes the effect away, from which the constant is scaled: 0 of a share or of
            cycles, 1 of a factor.
        spread: standard deviation, over boards, of the logarithm by which the constant moves.
    """

    name: str
    value: float
    neutral: float = 0.0
    spread: float = 0.5

    def on(self, hardware: HardwareModel) -> float:
        """The constant on a board."""
        if not hardware.learned:
            return self.value
        move = _moves(hardware.learned).get(self.name, 0.0)
        return self.neutral + (self.value - self.neutral) * math.exp(move)


@dataclass(frozen=True)
class Parameter:
    """One number that measurements may move.

    Attributes:
        name: of the constant, or of a figure with "hardware." in front.
        spread: standard deviation of its logarithm before anything is measured.
    """

    name: str
    spread: float


# Figures that estimates of CPUs read, and how far what is stated is from what programs see.
_FIGURES = {
    "frequency_hz": 0.25,
    "issue_width": 0.2,
    "loads_per_cycle": 0.2,
    "fma_latency_cycles": 0.2,
    "look_ahead": 0.4,
    "parallel_launch_s": 0.7,
}
_BANDWIDTH_SPREAD = 0.4


def parameters_of(constants: Iterable[EstimateConstant], hardware: HardwareModel) -> tuple[Parameter, ...]:
    """Everything that measurements of a CPU may move, each parameter once, in a fixed order."""
    found = {f"hardware.{name}": spread for name, spread in _FIGURES.items()}
    found |= {f"hardware.{level.name}": _BANDWIDTH_SPREAD for level in hardware.levels}
    found |= {constant.name: constant.spread for constant in constants}
    return tuple(Parameter(name, spread) for name, spread in found.items())


def as_learned(hardware: HardwareModel) -> HardwareModel:
    """The hardware model that estimates read: its figures moved by what is learned."""
    return _with_moved_figures(hardware) if hardware.learned else hardware


@lru_cache(maxsize=256)
def _with_moved_figures(hardware: HardwareModel) -> HardwareModel:
    moves = dict(hardware.learned)
    figures = {
        name: getattr(hardware, name) * math.exp(moves[f"hardware.{name}"])
        for name in _FIGURES
        if f"hardware.{name}" in moves
    }
    levels = tuple(
        replace(
            level,
            bandwidth_bytes_per_s=level.bandwidth_bytes_per_s
            * math.exp(moves.get(f"hardware.{level.name}", 0.0)),
        )
        for level in hardware.levels
    )
    return replace(hardware, levels=levels, **figures)


@lru_cache(maxsize=256)
def _moves(learned: tuple[tuple[str, float], ...]) -> dict[str, float]:
    return dict(learned)
