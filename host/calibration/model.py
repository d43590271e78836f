"""The figures of a calibration, as plain data, and whether they can be true."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

from host.errors import UserError
from targets import Board, HardwareModel, MachineDescription

SCHEMA = "edgetlm.calibration/1"

# Clocks of any processor with vectors that a board of ours has.
_CLOCKS_HZ = (1e8, 8e9)
# Measured over declared: a virtual machine reports its base clock, a board runs throttled.
_PEAK_RANGE = (0.2, 3.0)
# A level may seem faster than the one inside it, or nearer, by this much: noise of a machine in use.
_NOISE = 1.25
# Loads of a whole vector that the widest core of today starts in one cycle.
_MAX_LOADS = 4.0
_FMA_LATENCY_CYCLES = (1.5, 20.0)
_LONGEST_LAUNCH_S = 5e-3
# Between the rounds: beyond it, other work had the processor in most of them.
_LARGEST_SPREAD = 1.3


@dataclass(frozen=True)
class LevelFigures:
    """One memory level as measured from one core.

    Attributes:
        name: "L1", "L2", "L3" or "DRAM".
        working_set_bytes: what was read over and over.
        bandwidth_bytes_per_s: of reading it in order.
        latency_s: of one load whose address the load before it gave.
    """

    name: str
    working_set_bytes: int
    bandwidth_bytes_per_s: float
    latency_s: float


@dataclass(frozen=True)
class CurvePoint:
    """Bandwidth of reading a working set of some size, for people to look at."""

    size_bytes: int
    bandwidth_bytes_per_s: float


@dataclass(frozen=True)
class Calibration:
    """Figures of one device.

    Attributes:
        device: the user's name for it.
        board: the kind of board that it was taken for.
        machine: hash of the machine that was measured; see `machine_hash`.
        date: ISO 8601, UTC.
        versions: of what measured, by name.
        seconds: how long it took.
        vector_bits: width of the vectors that were used.
        frequency_hz: clock under vector load.
        peak_flops: fp32 FLOP/s of one core.
        fma_latency_cycles: of a dependent multiply-add.
        levels: innermost first.
        parallel_launch_s: of a parallel loop over all cores; None on one core.
        threads: cores that it was measured with.
        load: load average of the device before it began.
        spread: time of the peak program in a middling round over that in the fastest.
        curve: bandwidth over size.
    """

    device: str
    board: str
    machine: str
    date: str
    versions: Mapping[str, str]
    seconds: float
    vector_bits: int
    frequency_hz: float
    peak_flops: float
    fma_latency_cycles: float
    levels: tuple[LevelFigures, ...]
    parallel_launch_s: float | None
    threads: int
    load: float
    spread: float
    curve: tuple[CurvePoint, ...] = ()

    def applied(self, hardware: HardwareModel) -> HardwareModel:
        """The declared model with every measured value in place of the declared one."""
        found = {level.name: level for level in self.levels}
        levels = tuple(
            replace(
                level,
                bandwidth_bytes_per_s=found[level.name].bandwidth_bytes_per_s,
                latency_s=found[level.name].latency_s,
            )
            if level.name in found
            else level
            for level in hardware.levels
        )
        per_cycle = self.peak_flops / (2.0 * max(1, self.vector_bits // 32) * self.frequency_hz)
        launch = self.parallel_launch_s
        return replace(
            hardware,
            frequency_hz=self.frequency_hz,
            peak_flops=self.peak_flops,
            # To a twentieth: a core starts one or two in a cycle, or one in two; the rest is noise.
            fma_per_cycle=max(0.05, round(per_cycle * 20) / 20),
            fma_latency_cycles=self.fma_latency_cycles,
            levels=levels,
            parallel_launch_s=hardware.parallel_launch_s if launch is None else launch,
            source="calibrated",
        )

    def complaints(self, declared: HardwareModel) -> list[str]:
        """The figures that cannot be true of any processor, or of this one; empty where all are plausible."""
        found = []
        if not _CLOCKS_HZ[0] <= self.frequency_hz <= _CLOCKS_HZ[1]:
            found.append(f"a clock of {self.frequency_hz / 1e9:.2f} GHz")
        ratio = self.peak_flops / declared.peak_flops
        if not _PEAK_RANGE[0] <= ratio <= _PEAK_RANGE[1]:
            found.append(
                f"a peak of {self.peak_flops / 1e9:.1f} GFLOP/s where"
                f" {declared.peak_flops / 1e9:.1f} is declared"
            )
        if not _FMA_LATENCY_CYCLES[0] <= self.fma_latency_cycles <= _FMA_LATENCY_CYCLES[1]:
            found.append(f"a multiply-add of {self.fma_latency_cycles:.1f} cycles")
        most = _MAX_LOADS * max(self.vector_bits, 32) / 8 * self.frequency_hz
        if self.levels and self.levels[0].bandwidth_bytes_per_s > most:
            found.append(
                f"{self.levels[0].name} at {self.levels[0].bandwidth_bytes_per_s / 1e9:.0f} GB/s, more than"
                f" {_MAX_LOADS:.0f} loads a cycle"
            )
        for inner, outer in pairwise(self.levels):
            if outer.bandwidth_bytes_per_s > _NOISE * inner.bandwidth_bytes_per_s:
                found.append(
                    f"{outer.name} ({outer.bandwidth_bytes_per_s / 1e9:.0f} GB/s) faster than {inner.name}"
                    f" ({inner.bandwidth_bytes_per_s / 1e9:.0f} GB/s)"
                )
            if outer.latency_s * _NOISE < inner.latency_s:
                found.append(
                    f"{outer.name} ({outer.latency_s * 1e9:.1f} ns) nearer than {inner.name}"
                    f" ({inner.latency_s * 1e9:.1f} ns)"
                )
        if self.parallel_launch_s is not None and not 0.0 < self.parallel_launch_s <= _LONGEST_LAUNCH_S:
            found.append(f"{self.parallel_launch_s * 1e6:.0f} us to start a parallel loop")
        if self.spread > _LARGEST_SPREAD:
            found.append(f"rounds of the same work that differ {self.spread:.1f} times")
        return found

    def to_json(self) -> dict[str, Any]:
        """The calibration as the fields of its file."""
        return {"schema": SCHEMA, **asdict(self)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Calibration:
        """Read the stored form.

        Raises:
            UserError: it is of another schema or incomplete.
        """
        if content.get("schema") != SCHEMA:
            raise UserError(f"calibration of schema {content.get('schema')!r}, this program reads {SCHEMA!r}")
        try:
            values = {name: content[name] for name in cls.__dataclass_fields__}
            values["levels"] = tuple(LevelFigures(**level) for level in values["levels"])
            values["curve"] = tuple(CurvePoint(**point) for point in values["curve"])
            return cls(**values)
        except (KeyError, TypeError) as error:
            raise UserError(f"calibration is damaged ({error})") from error


def machine_hash(description: MachineDescription, board: Board) -> str:
    """Hash of what makes a machine another one: processor, caches, device tree, and the vectors in use.

    Cores, memory and versions are left out: an agent that is given fewer cores, or a new system on the
    same board, changes none of the figures of one core.
    """
    content = {
        "machine": description.machine,
        "cpu_name": description.cpu_name,
        "features": sorted(description.features),
        "cache_bytes": dict(sorted(description.cache_bytes.items())),
        "device_tree_model": description.device_tree_model,
        "vector_bits": board.hardware.vector_bits,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
