"""CUDA source to cubins with NVIDIA's run-time compiler out of its package: no GPU, driver or toolkit."""

from __future__ import annotations

import ctypes
import importlib.util
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from host.errors import BuildError

# A cubin runs under drivers of its own CUDA major version only, so each major has its compiler.
_LIBRARIES = {11: "libnvrtc.so.11.2", 12: "libnvrtc.so.12", 13: "libnvrtc.so.13"}
_PACKAGES = {11: "nvidia-cuda-nvrtc-cu11", 12: "nvidia-cuda-nvrtc-cu12", 13: "nvidia-cuda-nvrtc"}
MAJORS = tuple(_LIBRARIES)
_FOLDERS = ("cuda_nvrtc/lib", "cu13/lib")
# Functions without a mark are for the device: TVM gives a host that has no part in it.
_OPTIONS = ("--std=c++17", "--device-as-default-execution-space", "--ptxas-options=-v")

_SPARING = "--ptxas-options=--register-usage-level=0"
_BOUNDS = re.compile(r"__launch_bounds__\((\d+)\)")

# What TVM's sources include of the CUDA C++ library, as far as they use it: the types of the LP64 model and
# a few traits. The library itself is 15 MB of headers.
_HEADERS = {
    "cuda/std/cstdint": """
#pragma once
namespace cuda { namespace std {
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
} }
""",
    "cuda/std/type_traits": """
#pragma once
namespace cuda { namespace std {
template <bool V> struct truth { static constexpr bool value = V; };
template <class A, class B> struct is_same : truth<false> {};
template <class A> struct is_same<A, A> : truth<true> {};
template <class A, class B> inline constexpr bool is_same_v = is_same<A, B>::value;
template <class A, class... B> inline constexpr bool any_of = (is_same<A, B>::value || ...);
template <class A> struct is_floating_point : truth<any_of<A, float, double>> {};
template <class A> struct is_signed
    : truth<any_of<A, signed char, short, int, long, long long, float, double>> {};
template <class A> struct is_unsigned
    : truth<any_of<A, bool, unsigned char, unsigned short, unsigned, unsigned long, unsigned long long>> {};
template <class A> struct is_integral
    : truth<(is_signed<A>::value && !is_floating_point<A>::value) || is_unsigned<A>::value
            || is_same<A, char>::value> {};
template <bool B, class A = void> struct enable_if {};
template <class A> struct enable_if<true, A> { typedef A type; };
template <bool B, class X, class Y> struct conditional { typedef X type; };
template <class X, class Y> struct conditional<false, X, Y> { typedef Y type; };
} }
""",
}

# What the headers for half precision ask of the compiler since CUDA 12, for the compiler of CUDA 11: all code
# here is for the device, and of one architecture.
_TARGETS = """
#define NV_EXPAND(...) __VA_ARGS__
#define NV_YES(yes, no) NV_EXPAND yes
#define NV_NO(yes, no) NV_EXPAND no
#define NV_IF_ELSE_TARGET(condition, yes, no) NV_TAKE_##condition(({ yes }), ({ no }))
#define NV_TAKE_NV_IS_DEVICE NV_YES
#define NV_TAKE_NV_PROVIDES_SM_53 NV_YES
#define NV_TAKE_NV_PROVIDES_SM_60 NV_YES
#if __CUDA_ARCH__ >= 800
#define NV_TAKE_NV_PROVIDES_SM_80 NV_YES
#else
#define NV_TAKE_NV_PROVIDES_SM_80 NV_NO
#endif
#if __CUDA_ARCH__ >= 900
#define NV_TAKE_NV_PROVIDES_SM_90 NV_YES
#else
#define NV_TAKE_NV_PROVIDES_SM_90 NV_NO
#endif
"""

_ENTRY = re.compile(r"Compiling entry function '(\w+)' for '\w+'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class Resources:
    """The resources that the assembler assigned to one kernel.

    Attributes:
        kernel: name of the entry function.
        registers: 32-bit registers of each thread.
        stack_bytes: local memory of each thread: spills, and arrays that are indexed at run time.
        spill_store_bytes, spill_load_bytes: traffic of registers that did not fit, per thread.
        shared_bytes: static shared memory of each block.
    """

    kernel: str
    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int

    @property
    def spills(self) -> bool:
        """Whether registers went to memory."""
        return self.spill_store_bytes > 0 or self.spill_load_bytes > 0


@dataclass(frozen=True)
class Cubin:
    """Device code for one architecture.

    Attributes:
        content: the ELF file that the driver loads.
        resources: of each kernel in it.
    """

    content: bytes
    resources: tuple[Resources, ...]


def parse_resources(log: str) -> tuple[Resources, ...]:
    """The kernels in a log of the assembler (`ptxas -v`)."""
    found = []
    parts = _ENTRY.split(log)
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        frame, used, shared = _FRAME.search(text), _USED.search(text), _SHARED.search(text)
        if frame is None or used is None:
            continue
        stack, stores, loads = (int(number) for number in frame.groups())
        found.append(
            Resources(name, int(used[1]), stack, stores, loads, int(shared[1]) if shared is not None else 0)
        )
    return tuple(found)


def package_folders() -> tuple[Path, ...]:
    """Folders of NVIDIA's packages in this environment."""
    spec = importlib.util.find_spec("nvidia")
    locations = spec.submodule_search_locations if spec is not None else None
    return tuple(Path(location) for location in locations or ())


class Nvrtc:
    """The compiler of one CUDA major version.

    Args:
        major: of CUDA, 11, 12 or 13; the version that the board's driver loads.

    Raises:
        BuildError: its package is not installed.
    """

    def __init__(self, major: int = 12) -> None:
        path = _library(major)
        try:
            # The compiler looks for its built-in functions by name only, and finds what is loaded.
            for builtins in sorted(path.parent.glob(f"libnvrtc-builtins.so.{major}.*")):
                ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
            self._library = ctypes.CDLL(str(path))
        except OSError as error:
            raise BuildError(f"NVRTC does not load: {error}; install {_PACKAGES[major]} again") from error
        self._prelude = _TARGETS if major == 11 else ""
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        first, second = ctypes.c_int(), ctypes.c_int()
        self._check(self._library.nvrtcVersion(ctypes.byref(first), ctypes.byref(second)))
        self.version = f"{first.value}.{second.value}"

    def compile(self, source: str, arch: str) -> Cubin:
        """Compile CUDA C++ to a cubin; runs outside of the interpreter lock.

        The assembler may aim at more resident threads than a program needs, and spill although registers
        are left. Such a program is assembled again, with optimisations that take registers held back, and as
        one of which a single resident block is enough.

        Args:
            source: the translation unit.
            arch: "sm_87".

        Raises:
            BuildError: the compiler refuses it; the message has the first error.
        """
        # NVRTC of CUDA 11 leaves its thread with the locale "C", in which text files are ASCII.
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="nvrtc") as apart:
            return apart.submit(self._least_spilled, source, arch).result()

    def _least_spilled(self, source: str, arch: str) -> Cubin:
        first = self._compile(source, arch, _OPTIONS)
        if not any(kernel.spills for kernel in first.resources):
            return first
        sparing = self._compile(source, arch, (*_OPTIONS, _SPARING))
        alone = self._compile(_BOUNDS.sub(r"__launch_bounds__(\1, 1)", source), arch, _OPTIONS)
        return min(first, sparing, alone, key=_spilled)

    def _compile(self, source: str, arch: str, flags: Sequence[str]) -> Cubin:
        program = ctypes.c_void_p()
        headers, names = _strings(_HEADERS.values()), _strings(_HEADERS)
        self._check(
            self._library.nvrtcCreateProgram(
                ctypes.byref(program),
                (self._prelude + source).encode(),
                b"kernel.cu",
                len(_HEADERS),
                headers,
                names,
            )
        )
        try:
            includes = [f"--include-path={folder}" for folder in _include_folders()]
            options = _strings([f"--gpu-architecture={arch}", *flags, *includes])
            code = self._library.nvrtcCompileProgram(program, len(options), options)
            log = self._bytes(program, "nvrtcGetProgramLog").rstrip(b"\0").decode(errors="replace")
            if code != 0:
                raise BuildError(f"NVRTC {self.version} for {arch}: {_first_error(log)}")
            return Cubin(self._bytes(program, "nvrtcGetCUBIN"), parse_resources(log))
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _bytes(self, program: ctypes.c_void_p, name: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._library, f"{name}Size")(program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._library, name)(program, buffer))
        return buffer.raw

    def _check(self, code: int) -> None:
        if code != 0:
            raise BuildError(f"NVRTC failed: {self._library.nvrtcGetErrorString(code).decode()}")


def _spilled(cubin: Cubin) -> int:
    return sum(kernel.spill_store_bytes + kernel.spill_load_bytes for kernel in cubin.resources)


def _strings(texts: Iterable[str]) -> ctypes.Array[ctypes.c_char_p]:
    encoded = [text.encode() for text in texts]
    return (ctypes.c_char_p * len(encoded))(*encoded)


def _library(major: int) -> Path:
    if major not in _LIBRARIES:
        raise BuildError(f"no compiler for CUDA {major}; known are {', '.join(map(str, _LIBRARIES))}")
    for folder in package_folders():
        for place in _FOLDERS:
            path = folder / place / _LIBRARIES[major]
            if path.is_file():
                return path
    raise BuildError(f"the CUDA {major} compiler is missing: install the package {_PACKAGES[major]}")


def _include_folders() -> Sequence[Path]:
    """Headers for half precision; code in fp32 needs none."""
    folders = [folder / "cuda_runtime" / "include" for folder in package_folders()]
    return [folder for folder in folders if folder.is_dir()]


def _first_error(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if "error" in line]
    return lines[0] if lines else (log.strip().splitlines() or ["no message"])[0]
