"""The Python executor's runtime: `tvm_ffi` and TVM's runtime libraries out of their wheels, 10 MB.

The folder is put on the executor's path. The agent finds `tvm/lib/libtvm_runtime.so` in it as in an installed
package; there is no Python of TVM in it.
"""

from __future__ import annotations

import importlib.metadata

from host.payload.wheels import Part, Platform

# Versions of CPython that apache-tvm-ffi has wheels for; with an older one the native executor serves.
OLDEST_PYTHON = (3, 9)
NEWEST_PYTHON = (3, 14)
ARCHITECTURES = ("aarch64", "x86_64")
LARGEST_BYTES = 15_000_000
# The wheels say manylinux_2_28.
OLDEST_GLIBC = (2, 28)


def runtime_parts(cuda: bool = False) -> tuple[Part, ...]:
    """The distributions of the runtime, in exactly the versions that this host compiles with.

    Importing tvm_ffi needs libtvm_ffi_testing.so and tvm_ffi.cpp; sources, headers and stubs are for who
    builds extensions.

    Args:
        cuda: whether the library for CUDA GPUs is among it.
    """
    left_out = ("3rdparty", "include", "src", "share", "cython", "stub", "rust")
    return (
        Part(
            _pinned("apache-tvm-ffi"),
            keep=("tvm_ffi/*.py", "tvm_ffi/*.so", "*.dist-info/METADATA", "*.dist-info/RECORD"),
            drop=tuple(f"tvm_ffi/{name}/*" for name in left_out),
        ),
        Part(
            _pinned("apache-tvm"),
            keep=(
                "tvm/lib/libtvm_runtime.so",
                "tvm/lib/libtvm_runtime_extra.so",
                *(("tvm/lib/libtvm_runtime_cuda.so",) if cuda else ()),
                "apache_tvm-*.dist-info/METADATA",
            ),
            any_python=True,
        ),
        Part(_pinned("typing-extensions"), keep=("typing_extensions.py",), any_python=True),
    )


def why_not(platform: Platform) -> str | None:
    """Why the Python executor cannot serve a platform, None if it can."""
    if platform.architecture not in ARCHITECTURES:
        return f"there are no wheels of the runtime for {platform.architecture}"
    if not OLDEST_PYTHON <= platform.python <= NEWEST_PYTHON:
        versions = f"{_text(OLDEST_PYTHON)} to {_text(NEWEST_PYTHON)}"
        return f"the runtime's wheels are for Python {versions}, the board has {_text(platform.python)}"
    if platform.glibc < OLDEST_GLIBC:
        return f"the runtime's wheels need glibc {_text(OLDEST_GLIBC)}, the board has {_text(platform.glibc)}"
    return None


def _pinned(name: str) -> str:
    # Programs and runtime are of one version: what is installed here is what requirements/cpu.txt pins.
    return f"{name}=={importlib.metadata.version(name)}"


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
