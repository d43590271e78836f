"""Instructions of kernels for RISC-V's vectors, and registers that they work on, under the emulator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.llm.instructions.__main__ import of_all
from benchmarks.llm.instructions.products import Product
from benchmarks.llm.instructions.registers import Registers
from benchmarks.llm.instructions.vectors import Counted, count_traced, runner
from host.errors import EngineError

BYTES = (((16,), "uint8"),)
# Registers of each instruction of vectors behind it; others have none.
SOURCE = """
.globl __tvm_ffi_one
__tvm_ffi_one:
    ld t0, 8(a1)
    ld t1, 0(t0)
    vsetivli zero, 16, e8, m1, ta, ma
    vle8.v v8, (t1)               # 1
    vwmul.vv v10, v8, v8          # 2
    vsetvli zero, zero, e16, m2, ta, ma
    vwadd.vv v12, v10, v10        # 4
    vnsrl.wi v10, v12, 0          # 4
    vwredsum.vs v4, v10, v10      # 2
    vsetvli zero, zero, e32, m4, ta, ma
    vredsum.vs v4, v12, v12       # 4
    vmv.x.s a2, v4                # 1
    vmv4r.v v16, v12              # 4
    vs4r.v v16, (t1)              # 4
    vlseg2e8.v v20, (t1)          # 2: elements of a quarter of the bits
    li t2, 3
again:
    addi t2, t2, -1
    bnez t2, again
    li a0, 0
    ret
.globl __tvm_ffi_fails
__tvm_ffi_fails:
    li a0, 1
    ret
.globl __tvm_ffi_calls
__tvm_ffi_calls:
    tail elsewhere@plt
.globl __tvm_ffi_of_a_register
__tvm_ffi_of_a_register:
    li t0, 0
    vsetvl t1, t0, t0
    ret
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """The runner, and a library."""
    folder = tmp_path_factory.mktemp("instructions")
    (folder / "one.s").write_text(SOURCE)
    zig, library = [sys.executable, "-m", "ziglang"], folder / "one.so"
    flags = ["-target", "riscv64-linux-musl", "-mcpu=generic_rv64+m+a+f+d+c+v", "-c", str(folder / "one.s")]
    subprocess.run([*zig, "cc", *flags, "-o", str(folder / "one.o")], check=True)
    link = ["ld.lld", "-shared", "--hash-style=gnu", "-o", str(library), str(folder / "one.o")]
    subprocess.run([*zig, *link], check=True)
    return runner(folder), library.read_bytes()


@pytest.mark.parametrize("vector_bits", [128, 256])
def test_each_instruction_and_its_registers_are_counted(made: tuple[Path, bytes], vector_bits: int) -> None:
    program, library = made
    assert count_traced(program, library, "one", BYTES, vector_bits) == Counted(24, 28)


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        ("fails", "ended with 8"),
        ("calls", "ended with 7"),
        ("of_a_register", "is in a register"),
        ("x", "no kernel x"),
    ],
)
def test_what_cannot_be_counted_is_one_line(made: tuple[Path, bytes], kernel: str, reason: str) -> None:
    program, library = made
    with pytest.raises(EngineError, match=reason) as refusal:
        count_traced(program, library, kernel, BYTES, 128)
    assert "\n" not in str(refusal.value)


def test_compressed_and_scalar_instructions_have_no_registers() -> None:
    # c.nop, add, and fmadd.s, which lies beside the vectors' opcodes.
    counted = Registers(bytes.fromhex("01003305b5004375b518"), 0x1000)
    for address in (0x1000, 0x1002, 0x1006):
        counted.executed(address)
    assert counted.total == 0


def test_counts_of_all_products_are_weighed_by_their_sizes() -> None:
    products = [
        Product(rows, 32, {"edgetlm": {"instructions": each}}) for rows, each in ((32, 1.0), (96, 3.0))
    ]
    assert of_all(products) == {"edgetlm": {"instructions": 2.5}}
