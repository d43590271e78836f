"""Any x86-64 machine: the board is made from what the agent reports of the processor."""

from __future__ import annotations

import re
from collections.abc import Mapping

from targets.board import Board, MachineDescription
from targets.hardware import Bfloat16Products, HardwareModel, MatrixTiles, MemoryLevel

NAME = "x86_64"
TITLE = "x86-64 machine"

# AVX-512 subsets that LLVM's x86-64-v4 level names; all of them or none.
_AVX512 = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


# Typical machines of each microarchitecture level of the x86-64 psABI: 4 cores at 3 GHz.
_AVX2 = ("avx", "avx2", "bmi1", "bmi2", "fma")
# LLVM's feature of VDPBF16PS.
BFLOAT16_FEATURE = "avx512bf16"
# What Linux and LLVM call VPERMI2B, which chooses among 128 bytes.
BYTE_TABLES_FEATURE = "avx512vbmi"
# LLVM's names of AMX by Linux's: the registers, and products of bytes and of bfloat16 numbers. Linux writes
# the parts of LLVM's names with underscores.
TILES_FEATURE = "amx-tile"
_TILE_PRODUCTS = {"amx-int8": ("u8s8", "s8s8"), "amx-bf16": ("bf16bf16",)}
_XEON_ONE_UNIT = re.compile(r"Bronze|Silver|Gold 5[12]")
# Bytes a cycle that one core gets from a third level behind a mesh, and from one beside it. A Xeon of the
# fifth generation: 9 (29 GB/s at 3.2 GHz, `sdk devices calibrate`).
_MESH_BYTES, _RING_BYTES = 10, 20
# Cycles of a load port of fetching a line ahead beside two units of 512 bits. Programs of dense products,
# weights warm, that fetch for each tile all that it reads: 1.09 times the time of those that do not fetch on
# a Xeon of the fifth generation, and 1.00 on a Zen 4, which computes twice as long meanwhile. Shared by the
# tiles of a block: 1.00 on both (medians of 38, 26, 14 and 12 pairs; docs/gensor.md).
_XEON_FETCH_CYCLES = 1.0
# Cycles of its vectors' units in a turn of a loop: the units share two of the five ports of integers, and
# counting takes a turn of them now and then. Four steps of the sum written out, in place of one, take 0.986
# of the time there, and 1.000 on a Zen 4, whose integers have ports of their own (medians of 77 and of 73
# pairs).
_XEON_LOOP_CYCLES = 0.2
_XEON_CLIENT_CORE = re.compile(r"Xeon\(R\) (E-|W-1)")
DECLARED = {
    f"{NAME}-{level}": MachineDescription(
        machine="x86_64",
        cpu_name=f"{TITLE}, level {level}",
        cores=4,
        features=features,
        cache_bytes={"L1": 32 << 10, "L2": 512 << 10, "L3": 8 << 20},
        frequency_hz=3.0e9,
        memory_bytes=8 << 30,
    )
    for level, features in (("v2", ()), ("v3", _AVX2), ("v4", (*_AVX2, *sorted(_AVX512))))
}


def matches(description: MachineDescription) -> bool:
    """Whether `description` is a machine that this file describes."""
    return description.machine in ("x86_64", "amd64")


def resolve(description: MachineDescription, restrict: str = "") -> Board:
    """The board for a described machine.

    Args:
        description: the agent's report.
        restrict: "" for everything the processor has, "avx2" to leave AVX-512 unused.
    """
    features = set(description.features)
    avx512 = features >= _AVX512 and restrict != "avx2"
    avx2 = {"avx2", "fma"} <= features
    mcpu = "x86-64-v4" if avx512 else "x86-64-v3" if avx2 else "x86-64-v2"
    # LLVM's own vectoriser keeps to 256 bits on x86-64-v4 without this attribute: 1.4 times as slow on a
    # depthwise convolution.
    attributes = ["-prefer-256-bit"] if avx512 else []
    dots = _vnni(features, avx512, avx2)
    attributes += [dots] if dots else []
    hardware = _hardware(description, 512 if avx512 else 256 if avx2 else 128, avx512, bool(dots))
    attributes += [f"+{hardware.bfloat16.feature}"] if hardware.bfloat16 else []
    attributes += [f"+{hardware.byte_tables}"] if hardware.byte_tables else []
    attributes += [f"+{name}" for name in hardware.matrix_tiles.features] if hardware.matrix_tiles else []
    return Board(
        name=NAME if not restrict else f"{NAME}-{restrict}",
        title=description.cpu_name or TITLE,
        architecture="x86_64",
        tvm_target={
            "kind": "llvm",
            "mtriple": "x86_64-linux-gnu",
            "mcpu": mcpu,
            **({"mattr": attributes} if attributes else {}),
            "num-cores": description.cores,
        },
        hardware=hardware,
        sensors=("rapl", "hwmon"),
        boundary="package",
    )


def _vnni(features: set[str], avx512: bool, avx2: bool) -> str:
    """LLVM's feature of VPDPBUSD in the vectors used, "" where the processor lacks it.

    It adds four products of bytes to each 32-bit lane without saturation (Intel SDM). VPMADDUBSW, which
    older processors have, saturates sums of two; their VPMADDWD does not.
    """
    if avx512 and "avx512_vnni" in features:
        return "+avx512vnni"
    return "+avxvnni" if avx2 and not avx512 and "avx_vnni" in features else ""


def _fma_per_cycle(description: MachineDescription, vector_bits: int) -> float:
    """Multiply-adds of whole vectors that a core starts in a cycle; 128-bit SSE multiplies and adds apart.

    With 256 bits these are two. With 512 bits most cores join their two units to one. Two units of 512 bits
    have Intel's Xeon Scalable but for those parts of its first two generations whose data sheets say one
    (Bronze, Silver, Gold 51xx and 52xx), and AMD's Zen 5 but for its mobile parts, "Ryzen AI" (Intel 64
    optimisation manual; Intel ARK; AMD, software optimisation guide for family 1Ah).
    """
    if vector_bits != 512:
        return 2.0 if vector_bits == 256 else 1.0
    features, name = set(description.features), description.cpu_name
    if "amx_tile" in features:
        return 2.0
    if "Xeon" in name:
        # The third generation has these instructions, and so have the small "E", whose core is a client's.
        third = "avx512_vbmi2" in features
        one_unit = _XEON_CLIENT_CORE.search(name) or (_XEON_ONE_UNIT.search(name) and not third)
        return 1.0 if one_unit else 2.0
    # Zen 4 has AVX-512 and not yet AVX-VNNI.
    zen_5 = ("AMD" in name or "EPYC" in name) and "avx_vnni" in features
    return 2.0 if zen_5 and "Ryzen AI" not in name else 1.0


def _bfloat16(description: MachineDescription, fma_per_cycle: float) -> Bfloat16Products | None:
    """VDPBF16PS in vectors of 512 bits, which adds two products of bfloat16 numbers to each 32-bit lane.

    Zen 4 starts one in a cycle, as of its multiply-adds, and its sums follow each other after 6 cycles: loops
    over registers alone took 1.00 and 5.95 cycles for each, the multiply-adds 1.01 and 2.98 (an EPYC with
    Zen 4, the fastest of 20,000 rounds). A Xeon of the fifth generation starts one in two cycles, and four
    multiply-adds in that time: 0.67 to 0.73 ns and 0.173 ns for each, with both operands in registers or one
    broadcast from memory, for 12 to 27 sums (the fastest of 60 rounds, time of the thread). Estimates: that
    Zen 5 starts two, as of its multiply-adds, and that other cores of Intel do as that Xeon.
    """
    if "avx512_bf16" not in description.features:
        return None
    intel = "Xeon" in description.cpu_name or "amx_tile" in description.features
    return Bfloat16Products(BFLOAT16_FEATURE, 0.5 if intel else fma_per_cycle, 6.0)


def _matrix_tiles(description: MachineDescription) -> MatrixTiles | None:
    """AMX, of Xeons of the fourth generation on: eight registers of 16 rows of 64 bytes.

    A product of whole registers takes 16 cycles, one for each row of its first operand, also where both
    operands are loaded for each: 4.9 ns of 16 x 16 x 64 bytes on a Xeon of the fifth generation, against 41
    of VPDPBUSD. Four accumulators are set to zero and stored in 17.6 ns, and a configuration takes 47 ns. The
    agent leaves the features out where the kernel does not let a process use them.
    """
    features = [
        name for name in (TILES_FEATURE, *_TILE_PRODUCTS) if name.replace("-", "_") in description.features
    ]
    kinds = [kind for name in features for kind in _TILE_PRODUCTS.get(name, ())]
    return MatrixTiles(tuple(features), tuple(kinds)) if TILES_FEATURE in features and kinds else None


def required_tiles(target: Mapping[str, object]) -> tuple[str, ...]:
    """What a machine's description must name so that programs for a target run: Linux's names of AMX.

    Args:
        target: as plain data, from the manifest of a bundle.
    """
    given = target.get("mattr")
    names = [str(name) for name in given] if isinstance(given, (list, tuple)) else []
    every = (TILES_FEATURE, *_TILE_PRODUCTS)
    return tuple(name.replace("-", "_") for name in every if f"+{name}" in names)


def _hardware(description: MachineDescription, vector_bits: int, avx512: bool, vnni: bool) -> HardwareModel:
    fma_per_cycle = _fma_per_cycle(description, vector_bits)
    frequency = description.frequency_hz or 3.0e9
    lanes = vector_bits // 32
    cache = description.cache_bytes
    per_cycle = frequency
    # The first level is indexed by the bits of an address within a page: its ways have 4 KB each.
    first = cache.get("L1", 32 << 10)
    # Two loads a cycle, of 64 bytes where a core has two units of that width.
    first_bytes = 128 if vector_bits == 512 and fma_per_cycle == 2.0 else 64
    mesh = "Xeon" in description.cpu_name and not _XEON_CLIENT_CORE.search(description.cpu_name)
    two_units_of_intel = mesh and first_bytes == 128
    third_bytes = _MESH_BYTES if mesh else _RING_BYTES
    levels = (
        MemoryLevel("L1", first, first_bytes * per_cycle, 5 / frequency, ways=max(1, first // 4096)),
        MemoryLevel("L2", cache.get("L2", 512 << 10), 32 * per_cycle, 14 / frequency),
        MemoryLevel("L3", cache.get("L3", 8 << 20), third_bytes * per_cycle, 50 / frequency, ways=16),
        MemoryLevel("DRAM", 0, 20e9, 90e-9, ways=0),
    )
    return HardwareModel(
        cores=description.cores,
        frequency_hz=frequency,
        vector_bits=vector_bits,
        vector_registers=32 if avx512 else 16,
        fma_per_cycle=fma_per_cycle,
        fma_latency_cycles=4.0,
        peak_flops=2.0 * lanes * fma_per_cycle * frequency,
        levels=levels,
        parallel_launch_s=1e-6,
        source="detected",
        fetch_cycles=_XEON_FETCH_CYCLES if two_units_of_intel else 0.0,
        loop_cycles=_XEON_LOOP_CYCLES if two_units_of_intel else 0.0,
        dot_product="u8s8" if vnni else "s16s16",
        bfloat16=_bfloat16(description, fma_per_cycle) if vector_bits == 512 else None,
        matrix_tiles=_matrix_tiles(description) if avx512 else None,
        byte_tables=BYTE_TABLES_FEATURE if avx512 and BYTE_TABLES_FEATURE in description.features else "",
    )
