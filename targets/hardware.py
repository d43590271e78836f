"""What a processor is, as far as a schedule cares: plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryLevel:
    """One level of the memory hierarchy, seen from one core.

    Attributes:
        name: "L1", "L2", "L3" or "DRAM".
        size_bytes: capacity that one core can use; 0 for DRAM (unbounded).
        bandwidth_bytes_per_s: sustained reads from this level by one core.
        latency_s: load-to-use latency.
        line_bytes: unit of transfer.
        ways: associativity, 0 where unknown.
    """

    name: str
    size_bytes: int
    bandwidth_bytes_per_s: float
    latency_s: float
    line_bytes: int = 64
    ways: int = 8


@dataclass(frozen=True)
class HardwareModel:
    """A CPU as the construction sees it.

    Attributes:
        cores: cores that a program may use.
        frequency_hz: sustained clock under vector load.
        vector_bits: width of one vector register.
        vector_registers: architectural vector registers.
        fma_per_cycle: fused multiply-adds of full vectors that one core retires per cycle.
        fma_latency_cycles: latency of a dependent fused multiply-add.
        peak_flops: fp32 FLOP/s of one core (2 x lanes x fma_per_cycle x frequency unless calibrated).
        levels: memory levels, innermost first, DRAM last.
        parallel_launch_s: cost of starting and joining a parallel loop.
        source: where the numbers come from: "declared", "detected" or "calibrated".
    """

    cores: int
    frequency_hz: float
    vector_bits: int
    vector_registers: int
    fma_per_cycle: float
    fma_latency_cycles: float
    peak_flops: float
    levels: tuple[MemoryLevel, ...]
    parallel_launch_s: float
    source: str

    @property
    def lanes(self) -> int:
        """fp32 elements in one vector register (1 where there are no vectors)."""
        return max(1, self.vector_bits // 32)

    def level(self, name: str) -> MemoryLevel:
        """The memory level called `name`.

        Raises:
            KeyError: no such level.
        """
        for level in self.levels:
            if level.name == name:
                return level
        raise KeyError(name)
