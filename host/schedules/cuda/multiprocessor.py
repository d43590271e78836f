"""How the blocks of a program lie on the multiprocessors of a GPU, and how long they take there."""

from __future__ import annotations

from dataclasses import dataclass

from targets import GpuModel, HardwareModel

# Instructions of one thread around one copied element or vector: addresses, the load and the store.
COPY_INSTRUCTIONS = 6.0
# Loads of a thread that are in flight at once: the compiler unrolls the loop by four.
LOADS_IN_FLIGHT = 4.0
# Registers of a thread that streams: loads, computes and stores without keeping a tile.
STREAM_REGISTERS = 32
# Results for each multiprocessor from which on a thread for each of them fills the GPU.
MANY_RESULTS = 2048
# Shared memory that the system takes for each resident block from Ampere on (CUDA C++ Programming Guide).
_SHARED_RESERVED = 1024


def gpu_of(hardware: HardwareModel) -> GpuModel:
    """The GPU of the hardware.

    Raises:
        ValueError: programs are made for the CPU.
    """
    if hardware.gpu is None:
        raise ValueError("the hardware has no GPU")
    return hardware.gpu


def register_limit(gpu: GpuModel, threads: int) -> int:
    """Registers that each thread of a block of this size can have."""
    warps = -(-threads // gpu.warp)
    per_warp = gpu.registers_per_multiprocessor // warps // gpu.register_unit * gpu.register_unit
    return min(gpu.registers_per_thread, per_warp // gpu.warp)


@dataclass(frozen=True)
class Occupancy:
    """How the blocks of a program lie on the GPU.

    Attributes:
        grid: blocks of the whole program.
        per_multiprocessor: blocks that one multiprocessor holds at once.
        warps: warps of one block.
    """

    grid: int
    per_multiprocessor: int
    warps: int


def occupancy(gpu: GpuModel, grid: int, threads: int, thread_registers: int, shared: int) -> Occupancy:
    """How many blocks a multiprocessor holds: the least of what threads, registers and shared memory allow.

    Args:
        gpu: the GPU.
        grid: blocks of the whole program.
        threads: threads of a block.
        thread_registers: registers of a thread.
        shared: bytes of shared memory of a block.
    """
    warps = -(-threads // gpu.warp)
    wanted = min(thread_registers, register_limit(gpu, threads))
    per_warp = -(-wanted * gpu.warp // gpu.register_unit) * gpu.register_unit
    most = min(
        gpu.blocks_per_multiprocessor,
        gpu.threads_per_multiprocessor // (warps * gpu.warp),
        gpu.registers_per_multiprocessor // (per_warp * warps),
        gpu.shared_per_multiprocessor // (shared + _SHARED_RESERVED)
        if shared
        else gpu.blocks_per_multiprocessor,
    )
    return Occupancy(grid, max(1, most), warps)


@dataclass(frozen=True)
class Work:
    """Cycles of one block.

    Attributes:
        busy: of the multiprocessor's units, if others hide every wait.
        alone: from start to end with nothing else on the multiprocessor.
    """

    busy: float
    alone: float


def waves(gpu: GpuModel, placed: Occupancy, work: Work) -> float:
    """Cycles of the whole grid: full waves, then what is left, spread over the multiprocessors."""
    slots = gpu.multiprocessors * placed.per_multiprocessor
    full, rest = divmod(placed.grid, slots)
    # Blocks of a multiprocessor start one after the other, while others already work.
    busy = max(work.busy, gpu.block_cycles)
    alone = work.alone + gpu.warp_cycles * placed.warps
    cycles = full * max(placed.per_multiprocessor * busy, alone)
    if rest:
        cycles += max(-(-rest // gpu.multiprocessors) * busy, alone)
    return cycles


def start_cycles(gpu: GpuModel, grid: int, threads: int) -> tuple[float, float]:
    """Cycles of a multiprocessor to start its share of so many blocks, and the warps of one block."""
    warps = -(-threads // gpu.warp)
    return -(-grid // gpu.multiprocessors) * gpu.block_cycles, warps * gpu.warp_cycles


def bandwidth(gpu: GpuModel, bytes_on_their_way: float) -> float:
    """Bytes a second from DRAM: its own, or what the loads that wait at once allow."""
    dram = gpu.level("DRAM")
    return min(dram.bandwidth_bytes_per_s, bytes_on_their_way / dram.latency_s)
