"""Loops over products in registers alone: the most that `mma.sync` reaches on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.gpu.summary import PEAK

# Accumulators of a warp that do not depend on each other, warps of a block, and blocks of a multiprocessor.
_CHAINS, _WARPS, _BLOCKS = 8, 8, 2
_ENTRY = "peak"


@dataclass(frozen=True)
class Peak:
    """One loop.

    Attributes:
        name: what is multiplied.
        source: CUDA C++.
        operations: of one launch; a multiply-add is two.
        blocks, threads: of the launch, along x.
        result_bytes: that it writes, so that nothing is left out.
    """

    name: str
    source: str
    operations: int
    blocks: int
    threads: int
    result_bytes: int
    entry: str = _ENTRY


def peak_programs(multiprocessors: int, rounds: int = 2048) -> Iterator[Peak]:
    """A loop for each type that tensor cores of sm_80 and later multiply by `mma.sync`.

    Args:
        multiprocessors: of the GPU.
        rounds: products of each chain.
    """
    blocks, threads = _BLOCKS * multiprocessors, 32 * _WARPS
    products = blocks * _WARPS * _CHAINS * rounds
    for name, shape, types, kind, letter, count, depth in (
        (PEAK, "m16n8k16", "f32.f16.f16.f32", "float", "f", 4, 16),
        ("fp16 products, sums in fp16", "m16n8k16", "f16.f16.f16.f16", "unsigned", "r", 2, 16),
        ("int8 products", "m16n8k32", "s32.s8.s8.s32", "int", "r", 4, 32),
    ):
        yield Peak(
            name,
            _source(f"mma.sync.aligned.{shape}.row.col.{types}", kind, letter, count, rounds),
            2 * 16 * 8 * depth * products,
            blocks,
            threads,
            4 * blocks * threads,
        )


def _source(instruction: str, kind: str, letter: str, count: int, rounds: int) -> str:
    """Chains of products whose operands are zeros that the compiler does not know."""
    sums = ", ".join(f"%{number}" for number in range(count))
    left = ", ".join(f"%{count + number}" for number in range(4))
    right = ", ".join(f"%{count + 4 + number}" for number in range(2))
    outputs = ", ".join(f'"+{letter}"(sums[chain][{number}])' for number in range(count))
    inputs = ", ".join(f'"r"(operands[{number}])' for number in range(6))
    return f"""extern "C" __global__ void {_ENTRY}(unsigned* __restrict__ result) {{
  const int place = (int)blockIdx.x * {32 * _WARPS} + (int)threadIdx.x;
  unsigned operands[6];
  {kind} sums[{_CHAINS}][{count}];
  #pragma unroll
  for (int number = 0; number < 6; ++number) operands[number] = result[place];
  #pragma unroll
  for (int chain = 0; chain < {_CHAINS}; ++chain) {{
    #pragma unroll
    for (int number = 0; number < {count}; ++number) sums[chain][number] = 0;
  }}
  #pragma unroll 4
  for (int round = 0; round < {rounds}; ++round) {{
    #pragma unroll
    for (int chain = 0; chain < {_CHAINS}; ++chain) {{
      asm volatile("{instruction} {{{sums}}}, {{{left}}}, {{{right}}}, {{{sums}}};\\n"
                   : {outputs} : {inputs});
    }}
  }}
  unsigned total = 0;
  #pragma unroll
  for (int chain = 0; chain < {_CHAINS}; ++chain) {{
    #pragma unroll
    for (int number = 0; number < {count}; ++number) total += sums[chain][number] != 0;
  }}
  result[place] = total;
}}
"""
