"""The hardware model of a processor, as schedules need it: plain data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple


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


def _level(levels: tuple[MemoryLevel, ...], name: str) -> MemoryLevel:
    for level in levels:
        if level.name == name:
            return level
    raise KeyError(name)


class GpuMode(NamedTuple):
    """What a power mode of a board leaves of its GPU.

    Attributes:
        name: of the mode, as nvpmodel gives it.
        multiprocessors: that have power.
        frequency_hz: greatest clock of the GPU.
        memory_bytes_per_s: of the memory, by its greatest clock.
    """

    name: str
    multiprocessors: int
    frequency_hz: float
    memory_bytes_per_s: float


@dataclass(frozen=True)
class GpuModel:
    """A CUDA GPU as the construction sees it.

    Attributes:
        name: product name.
        arch: what cubins are made for, "sm_87".
        multiprocessors: streaming multiprocessors (SM).
        frequency_hz: sustained clock in the power mode that `source` names.
        warp: threads that run one instruction together.
        partitions: warp schedulers of one SM, each with its own execution units.
        fp32_per_cycle: fp32 fused multiply-adds of one SM per cycle.
        fp16_per_cycle: fp16 fused multiply-adds of one SM per cycle, without its matrix units.
        threads_per_block, threads_per_multiprocessor, blocks_per_multiprocessor: limits of occupancy.
        registers_per_multiprocessor: 32-bit registers of one SM.
        registers_per_thread: most that one thread can have.
        register_unit: registers of one warp are handed out in multiples of this.
        shared_per_multiprocessor: bytes of shared memory of one SM.
        shared_per_block: bytes that one block may declare statically.
        shared_opt_in: bytes that one block may have where its launch asks for them.
        shared_banks: banks of four bytes of the shared memory.
        block_cycles: of one SM between the starts of two blocks.
        warp_cycles: of one SM to start one warp of a block.
        matrix_fp16_per_cycle: fp16 multiply-adds with fp32 sums of one SM per cycle by mma.sync m16n8k16, 0
            where the GPU has no such instruction.
        matrix_half_sums_per_cycle: the same with sums in halves; 0 where that is not known to be faster.
        matrix_int8_per_cycle: the same of bytes with int32 sums, by mma.sync m16n8k32.
        levels: "shared" (one SM), then "L2" and "DRAM" (whole GPU), innermost first.
        transaction_bytes: unit of a transfer between L2 and an SM.
        launch_s: cost of starting one kernel.
        source: where the numbers come from.
    """

    name: str
    arch: str
    multiprocessors: int
    frequency_hz: float
    fp32_per_cycle: int
    fp16_per_cycle: int
    threads_per_multiprocessor: int
    blocks_per_multiprocessor: int
    shared_per_multiprocessor: int
    levels: tuple[MemoryLevel, ...]
    launch_s: float
    source: str
    warp: int = 32
    partitions: int = 4
    threads_per_block: int = 1024
    registers_per_multiprocessor: int = 65536
    registers_per_thread: int = 255
    register_unit: int = 256
    shared_per_block: int = 48 << 10
    shared_opt_in: int = 48 << 10
    shared_banks: int = 32
    block_cycles: float = 135.0
    warp_cycles: float = 15.0
    matrix_fp16_per_cycle: int = 0
    matrix_int8_per_cycle: int = 0
    matrix_half_sums_per_cycle: int = 0
    transaction_bytes: int = 32

    @property
    def peak_flops(self) -> float:
        """fp32 FLOP/s of the whole GPU, matrix units left out."""
        return 2.0 * self.fp32_per_cycle * self.multiprocessors * self.frequency_hz

    @property
    def next_launch_s(self) -> float:
        """Cost of starting one more kernel in a CUDA graph: a quarter of one by itself, an estimate.

        At least the 0.95 us that were measured on an H200 (docs/cuda.md).
        """
        return max(0.25 * self.launch_s, 0.95e-6)

    def level(self, name: str) -> MemoryLevel:
        """The memory level called `name`.

        Raises:
            KeyError: no such level.
        """
        return _level(self.levels, name)

    def in_mode(self, mode: GpuMode) -> GpuModel:
        """This GPU in a power mode: its clock, its multiprocessors, and the rates that follow from them.

        The memory's latency stays: it hardly depends on its clock. In the mode that the figures are of
        already, nothing changes, nor does what records of the board are known by.
        """
        memory = self.level("DRAM").bandwidth_bytes_per_s
        if (self.multiprocessors, self.frequency_hz, memory) == mode[1:]:
            return self
        faster = mode.frequency_hz / self.frequency_hz
        more = mode.multiprocessors / self.multiprocessors
        # Shared memory's rate is that of one multiprocessor.
        rates = {"shared": faster, "L2": faster * more}
        levels = [
            replace(level, bandwidth_bytes_per_s=mode.memory_bytes_per_s)
            if level.name == "DRAM"
            else replace(
                level,
                bandwidth_bytes_per_s=level.bandwidth_bytes_per_s * rates[level.name],
                latency_s=level.latency_s / faster,
            )
            for level in self.levels
        ]
        return replace(
            self,
            multiprocessors=mode.multiprocessors,
            frequency_hz=mode.frequency_hz,
            levels=tuple(levels),
            source=f"{self.source}; power mode {mode.name}",
        )


@dataclass(frozen=True)
class Bfloat16Products:
    """An instruction that adds two products of bfloat16 numbers to each 32-bit lane of sums.

    Attributes:
        feature: LLVM's name of it, as in a target's `mattr`.
        per_cycle: such instructions of whole vectors that one core starts in a cycle.
        latency_cycles: from the sums that one takes to those that it gives.
    """

    feature: str
    per_cycle: float
    latency_cycles: float


@dataclass(frozen=True)
class MatrixTiles:
    """Registers of whole matrices, and an instruction that multiplies two of them and adds to a third (AMX).

    Rows of the first operand by columns of the second: C[row, 0..15] += A[row, group] . B[group, 0..15], with
    groups of four bytes or two numbers of bfloat16 as of the vectors' dot product, and lanes of 32 bits.

    Attributes:
        features: LLVM's names of what is used, as in a target's `mattr`.
        kinds: of the dot products, as of `HardwareModel.dot_product`, and "bf16bf16" of bfloat16.
        row_cycles: of a product for each row of its first operand.
        load_row_cycles, store_row_cycles: of moving a row between a register and the first cache level; loads
            overlap with products.
        configure_cycles: of saying how many rows each register has.
        rows, row_bytes: of one register at most.
        registers: that there are.
    """

    features: tuple[str, ...]
    kinds: tuple[str, ...]
    row_cycles: float = 1.0
    load_row_cycles: float = 0.5
    store_row_cycles: float = 0.9
    configure_cycles: float = 150.0
    rows: int = 16
    row_bytes: int = 64
    registers: int = 8


# Multiply-adds of whole vectors in a cycle, from which on there are two units for them; calibrated figures
# are below 2.
_TWO_WIDE_UNITS = 1.5


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
        gpu: the GPU that programs are made for; None makes them for the CPU.
        issue_width: vector instructions that one core can start in a cycle, loads among them.
        loads_per_cycle: loads of a register that one core can start in a cycle.
        look_ahead: operations that wait in the core while later ones start: how far out of order it works.
        fetch_cycles: cycles of the load ports that an instruction takes which fetches a line ahead; 0 where
            that is hidden behind arithmetic.
        loop_cycles: cycles that counting takes the units of vectors in each turn of a loop, where they share
            their ports with it; 0 where it has others.
        dot_product: operands of the instruction that adds the products of several pairs to each 32-bit lane,
            as often in a cycle as a fused multiply-add: four bytes, "u8s8" (unsigned by signed: x86 VNNI) or
            "s8s8" (signed by signed: Arm SDOT), or two numbers of 16 bits, "s16s16" (x86 VPMADDWD and an
            addition); "" without one.
        byte_matrices: whether, beside "s8s8", an instruction multiplies two rows of eight signed bytes by two
            others into a matrix of 32-bit sums, as often in a cycle (Arm SMMLA): twice the products.
        bfloat16: the dot product of bfloat16 numbers; None without one.
        matrix_tiles: registers of matrices and their products; None without them.
        byte_tables: LLVM's name of the feature with which vectors of bytes choose among 256 bytes in a few
            operations, as in a target's `mattr` where the processor does not imply it; "" without one.
        half_arithmetic: whether vectors of halves (fp16) are multiplied and added in twice as many lanes, as
            often in a cycle as those of single precision.
        learned: logarithms by which the board's measurements have moved constants of the estimates, by name.
        weights_level: index of the memory level from which a run of a model reads its weights; see
            `with_weights`.
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
    gpu: GpuModel | None = None
    issue_width: float = 5.0
    loads_per_cycle: float = 2.0
    look_ahead: float = 192.0
    fetch_cycles: float = 0.0
    loop_cycles: float = 0.0
    dot_product: str = ""
    bfloat16: Bfloat16Products | None = None
    matrix_tiles: MatrixTiles | None = None
    byte_tables: str = ""
    half_arithmetic: bool = False
    byte_matrices: bool = False
    learned: tuple[tuple[str, float], ...] = ()
    weights_level: int = -1

    @property
    def halves_vectors(self) -> bool:
        """Whether an operation on half a vector takes half as long as one on a whole vector.

        So it is where units of 256 bits join for vectors of 512, each of which computes a half by itself
        (Zen 4, cores of Intel's clients). A unit as wide as a vector is as long busy with a half. The threads
        of a GPU's warp need not have the same block of channels.
        """
        return self.gpu is not None or (self.vector_bits == 512 and self.fma_per_cycle < _TWO_WIDE_UNITS)

    @property
    def half_vector_cost(self) -> float:
        """Time of an operation on half a vector or less over that on a whole one."""
        return 0.5 if self.halves_vectors else 1.0

    @property
    def has_fast_bfloat16(self) -> bool:
        """Whether its dot products of bfloat16 numbers do more in a cycle than its multiply-adds.

        Each adds two products to a lane.
        """
        return self.bfloat16 is not None and 2.0 * self.bfloat16.per_cycle > self.fma_per_cycle

    @property
    def has_fast_bfloat16_layers(self) -> bool:
        """Whether products with constant weights are faster in bfloat16: by vectors, or by matrices."""
        return self.has_fast_bfloat16 or self.has_bfloat16_tiles

    @property
    def has_bfloat16_tiles(self) -> bool:
        """Whether registers of matrices multiply bfloat16 numbers, which vectors make.

        A virtual machine may show the registers and hide the conversions, which the programs around need.
        """
        tiles = self.matrix_tiles
        return self.bfloat16 is not None and tiles is not None and "bf16bf16" in tiles.kinds

    def on_halves(self) -> HardwareModel:
        """The same processor as arithmetic in halves sees it: vectors of twice as many lanes.

        A lane counts as 32 bits, so that the first level gives twice the bytes.
        """
        return self._halves

    @cached_property
    def _halves(self) -> HardwareModel:
        # One object for all programs: what their estimates share is kept for each processor.
        first = self.levels[0]
        wide = replace(first, bandwidth_bytes_per_s=2.0 * first.bandwidth_bytes_per_s)
        return replace(
            self,
            vector_bits=2 * self.vector_bits,
            peak_flops=2.0 * self.peak_flops,
            levels=(wide, *self.levels[1:]),
            half_arithmetic=False,
        )

    @cached_property
    def lanes(self) -> int:
        """fp32 elements in one vector register (1 where there are no vectors); a warp on a GPU."""
        return max(1, self.vector_bits // 32) if self.gpu is None else self.gpu.warp

    def level(self, name: str) -> MemoryLevel:
        """The memory level called `name`.

        Raises:
            KeyError: no such level.
        """
        return _level(self.levels, name)

    def with_weights(self, size_bytes: int) -> HardwareModel:
        """The same processor in runs of a model with so many bytes of weights, one run after the other.

        A run finds them in the innermost level that holds all of them; never in the first one, which other
        tensors fill between two uses. They come from memory where no cache holds them.

        Args:
            size_bytes: of all weights that a run reads; 0 where that is not known, as from memory.
        """
        held = self.levels.index(self.level_of(size_bytes)) if size_bytes else len(self.levels) - 1
        found = max(1, held)
        if self.gpu is not None or found >= len(self.levels) - 1:
            return self
        return self._by_weights[found]

    @cached_property
    def _by_weights(self) -> dict[int, HardwareModel]:
        # One object for all programs, see `_halves`.
        return {index: replace(self, weights_level=index) for index in range(1, len(self.levels) - 1)}

    def level_of(self, size_bytes: float) -> MemoryLevel:
        """The innermost memory level that holds a buffer of this size beside other data."""
        for level in self.levels:
            if level.size_bytes and size_bytes <= 0.75 * level.size_bytes:
                return level
        return self.levels[-1]
