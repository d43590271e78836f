from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest
import tvm
from tvm import te, tirx

from host.build import build_kernel_library, compile_kernel
from host.build.elf import machine_of
from host.build.linker import link_kernels, link_shared, zig_executable
from host.errors import BuildError

Scale = Callable[[float], tvm.tirx.PrimFunc]

TARGETS = {
    "x86_64": {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "x86-64-v4"},
    "aarch64": {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mattr": ["+neon"]},
    "riscv64": {
        "kind": "llvm",
        "mtriple": "riscv64-unknown-linux-gnu",
        "mcpu": "generic-rv64",
        "mattr": ["+m", "+a", "+f", "+d", "+c", "+v"],
        "mabi": "lp64d",
    },
}


def exponential() -> tirx.PrimFunc:
    source = te.placeholder((64,), name="source")
    return te.create_prim_func([source, te.compute((64,), lambda i: tirx.exp(source[i]))])


@pytest.mark.parametrize("architecture", TARGETS)
def test_links_for_every_architecture(tmp_path: Path, architecture: str) -> None:
    target = tvm.target.Target(TARGETS[architecture])
    library = build_kernel_library({"exponential": exponential()}, tmp_path / "kernel.so", target)
    content = library.read_bytes()
    assert machine_of(content) == architecture
    assert content[16] == 3, "a shared object"
    assert b"__tvm_ffi_exponential\0" in content
    assert b"libm.so.6\0" in content, "the loader must bring in libm for expf"


def test_library_without_libm_functions_does_not_need_libm(tmp_path: Path, scale: Scale) -> None:
    target = tvm.target.Target(TARGETS["aarch64"])
    library = build_kernel_library({"scale": scale(2.0)}, tmp_path / "kernel.so", target)
    assert b"libm.so" not in library.read_bytes()


def test_equal_functions_share_code(tmp_path: Path, target: tvm.target.Target, scale: Scale) -> None:
    kernels = {name: compile_kernel(scale(2.0), name, target) for name in ("one", "two")}
    kernels["three"] = compile_kernel(scale(5.0), "three", target)
    architecture = machine_of(kernels["one"].content)
    library = ctypes.CDLL(str(link_kernels(kernels, tmp_path / "kernels.so", architecture)))
    addresses = [
        ctypes.cast(getattr(library, f"__tvm_ffi_{name}"), ctypes.c_void_p).value
        for name in ("one", "two", "three")
    ]
    assert addresses[0] == addresses[1] != addresses[2]


def test_foreign_function_is_refused_at_link_time(tmp_path: Path, target: tvm.target.Target) -> None:
    source = te.placeholder((64,), name="source")
    call = te.compute((64,), lambda i: tirx.call_extern("float32", "no_such_function", source[i]))
    with pytest.raises(BuildError, match="no_such_function"):
        build_kernel_library({"kernel": te.create_prim_func([source, call])}, tmp_path / "kernel.so", target)
    assert not list(tmp_path.iterdir())


def test_failure_leaves_nothing_and_is_one_line(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.o"
    damaged.write_bytes(b"not an object")
    with pytest.raises(BuildError) as caught:
        link_shared([damaged], tmp_path / "library.so", "x86_64")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == [damaged]


def test_missing_folder_is_a_build_error(tmp_path: Path, target: tvm.target.Target, scale: Scale) -> None:
    with pytest.raises(BuildError, match=r"linking kernel\.so"):
        build_kernel_library({"kernel": scale(2.0)}, tmp_path / "missing" / "kernel.so", target)


def test_missing_linker_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BuildError, match="install the package ziglang"):
        zig_executable()
