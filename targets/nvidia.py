"""NVIDIA GPUs that programs are made for: plain data.

Limits of occupancy, registers and shared memory: CUDA C++ Programming Guide 12.6, table "Technical
Specifications per Compute Capability"; operations per cycle: table "Throughput of Native Arithmetic
Instructions" of the same. Multiprocessors, clocks and bandwidths: the module's data sheet or white paper,
named with each. Bandwidth of shared memory: 32 banks of 4 bytes a cycle and SM. Bandwidth of L2: 64 bytes a
cycle and SM from Volta on (white paper "NVIDIA Tesla V100", and Jia et al., arXiv 1804.06826), which the
slices of a small GPU do not exceed together. Latencies: the same paper (shared 19 cycles, L2 193, DRAM
about 400 on Volta), taken for all; a calibration replaces them.
"""

from __future__ import annotations

from dataclasses import dataclass

from targets.hardware import GpuMode, GpuModel, MemoryLevel


@dataclass(frozen=True)
class _Generation:
    """The figures that all GPUs of one compute capability share."""

    arch: str
    fp32_per_cycle: int
    fp16_per_cycle: int
    threads: int
    blocks: int
    shared_bytes: int
    shared_opt_in: int
    matrix_fp16_per_cycle: int
    matrix_int8_per_cycle: int
    l2_bytes_per_cycle: float = 64.0


# mma.sync m16n8k16 (PTX ISA, "Matrix multiply-accumulate operation using mma instruction") is for sm_80 and
# later: Volta's tensor cores take other shapes. Ampere: the technical brief "NVIDIA Jetson AGX Orin Series"
# has 170 sparse INT8 TOPS for 16 SMs at 1.3 GHz, which are 2048 dense multiply-adds a cycle and SM, and half
# as many in fp16; that sums in fp32 are as fast is an estimate. Hopper: 2048 by wgmma (white paper), of which
# mma.sync reaches about 0.63 (arXiv 2402.13499). Blackwell: an estimate. Bytes (m16n8k32) at twice the rate.
_VOLTA = _Generation("sm_72", 64, 128, 2048, 32, 96 << 10, 96 << 10, 0, 0)
_AMPERE = _Generation("sm_87", 128, 128, 1536, 16, 164 << 10, 163 << 10, 1024, 2048)
_HOPPER = _Generation("sm_90", 128, 256, 2048, 32, 228 << 10, 227 << 10, 1280, 2560, 46.0)

# Compute capability 11.0: the same tables of the CUDA C++ Programming Guide 13.0.
_BLACKWELL = _Generation("sm_110", 128, 128, 1536, 24, 228 << 10, 227 << 10, 1024, 2048)

# Start of an empty kernel. Jetsons: an estimate. sm_90: in a CUDA graph, from programs that were measured on
# an H200 (as were Hopper's bandwidth of L2, `block_cycles` and `warp_cycles`, see docs/cuda.md).
_LAUNCH_S = {"sm_72": 10e-6, "sm_87": 8e-6, "sm_90": 0.95e-6, "sm_110": 5e-6}


def _gpu(
    name: str,
    generation: _Generation,
    multiprocessors: int,
    frequency_hz: float,
    l2_bytes: int,
    memory_bytes_per_s: float,
    source: str,
) -> GpuModel:
    cycle = 1.0 / frequency_hz
    l2_bytes_per_s = generation.l2_bytes_per_cycle * frequency_hz * multiprocessors
    levels = (
        MemoryLevel("shared", generation.shared_bytes, 128 * frequency_hz, 19 * cycle, 128, 0),
        MemoryLevel("L2", l2_bytes, l2_bytes_per_s, 193 * cycle, 32, 16),
        MemoryLevel("DRAM", 0, memory_bytes_per_s, 400 * cycle, 32, 0),
    )
    return GpuModel(
        name=name,
        arch=generation.arch,
        multiprocessors=multiprocessors,
        frequency_hz=frequency_hz,
        fp32_per_cycle=generation.fp32_per_cycle,
        fp16_per_cycle=generation.fp16_per_cycle,
        matrix_fp16_per_cycle=generation.matrix_fp16_per_cycle,
        matrix_int8_per_cycle=generation.matrix_int8_per_cycle,
        threads_per_multiprocessor=generation.threads,
        blocks_per_multiprocessor=generation.blocks,
        shared_per_multiprocessor=generation.shared_bytes,
        shared_opt_in=generation.shared_opt_in,
        levels=levels,
        launch_s=_LAUNCH_S[generation.arch],
        source=source,
    )


XAVIER_NX = _gpu("Jetson Xavier NX", _VOLTA, 6, 1.1e9, 512 << 10, 59.7e9, "Jetson Xavier NX data sheet, 20 W")
ORIN_NANO = _gpu(
    "Jetson Orin Nano 8 GB", _AMPERE, 8, 0.625e9, 2 << 20, 68e9, "Jetson Orin Nano data sheet, 15 W"
)
AGX_XAVIER = _gpu(
    "Jetson AGX Xavier", _VOLTA, 8, 1.377e9, 512 << 10, 136.5e9, "Jetson AGX Xavier data sheet, MAXN"
)
ORIN_NX = _gpu(
    "Jetson Orin NX 16 GB", _AMPERE, 8, 0.918e9, 2 << 20, 102.4e9, "Jetson Orin NX data sheet, 25 W"
)
AGX_ORIN = _gpu(
    "Jetson AGX Orin 64 GB", _AMPERE, 16, 1.3e9, 4 << 20, 204.8e9, "Jetson AGX Orin data sheet, MAXN"
)
AGX_THOR = _gpu(
    "Jetson AGX Thor", _BLACKWELL, 20, 1.575e9, 32 << 20, 273e9, "Jetson T5000 module data sheet, MAXN"
)
H100 = _gpu("H100 SXM", _HOPPER, 132, 1.755e9, 50 << 20, 3.35e12, "H100 white paper and data sheet, SXM5")

# Power modes of Orin: nvpmodel's files of Jetson Linux (p3767_0003 and its "super", p3767_0000, p3701_0000):
# GPU MAX_FREQ, TPC_PG_MASK (a TPC is two multiprocessors) and EMC MAX_FREQ. The memory moves 16 bytes at each
# edge of that clock, on AGX Orin 32. Where a file sets no limit, it is the data sheet's.
_NANO_MODES = (
    GpuMode("15W", 8, 0.625e9, 68e9),
    GpuMode("7W", 4, 0.408e9, 68e9),
    GpuMode("25W", 8, 0.918e9, 102.4e9),
    GpuMode("MAXN_SUPER", 8, 1.02e9, 102.4e9),
)
_NX_MODES = (
    GpuMode("MAXN", 8, 0.918e9, 102.4e9),
    GpuMode("10W", 4, 0.612e9, 68e9),
    GpuMode("15W", 4, 0.612e9, 102.4e9),
    GpuMode("25W", 8, 0.408e9, 102.4e9),
)
_AGX_MODES = (
    GpuMode("MAXN", 16, 1.3e9, 204.8e9),
    GpuMode("MODE_15W", 6, 0.408e9, 136.5e9),
    GpuMode("MODE_30W", 8, 0.612e9, 204.8e9),
    GpuMode("MODE_50W", 16, 0.816e9, 204.8e9),
)
# By the name of the GPU; the first is the one that its figures are of.
MODES = {ORIN_NANO.name: _NANO_MODES, ORIN_NX.name: _NX_MODES, AGX_ORIN.name: _AGX_MODES}
