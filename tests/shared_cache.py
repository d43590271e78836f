"""What is slow to make and the same for every test: executors, C++ examples, root file systems, models.

They are kept by content below the repository, where the next run finds them; several processes of the tests
may ask at once, and one makes what the others wait for. `python -m tests.shared_cache --jobs N` makes the
executors.
"""

from __future__ import annotations

import argparse
import fcntl
import functools
import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
SHARED = _ROOT / ".cache"
FOLDER = SHARED / "edgetlm" / "native"
# The C and C++ libraries that zig compiles for every system that something is built for.
ZIG = SHARED / "zig"
ARCHITECTURES = ("x86_64", "riscv64", "aarch64")
# Of the product's cache, what is known by its content and is slow to make or to fetch: root file systems,
# executors, wheels for boards.
_KEPT = ("emulation", "native", "wheels")
# What programs in C++ are compiled by and linked with.
_LINKED = ("ziglang", "apache-tvm", "apache-tvm-ffi")


@functools.cache
def executor_for(architecture: str, jobs: int = 0) -> Path:
    """The native executor for an architecture, compiled by so many jobs at once: 0 for all cores."""
    from host.payload.native import native_executor  # here, because it brings TVM

    return native_executor(architecture, jobs, cache=FOLDER)


@functools.cache
def root_of(architecture: str) -> Path:
    """The root file system of an emulated architecture."""
    from host.emulation.user import root
    from host.errors import DeviceError
    from tests.servers.mirror import skip_while_in_flux

    with _user_cache(SHARED):
        try:
            return root(architecture)
        except DeviceError as error:
            skip_while_in_flux(str(error))
            raise


@functools.cache
def cpp_example(name: str) -> Path:
    """A program of `examples/cpp`, built as for a board, with the compiler that every host has."""
    parts = ("examples/cpp", "device_agent/native", "device_agent/contract", "host/payload")
    sources = sorted(path for part in parts for path in (_ROOT / part).rglob("*") if path.is_file())
    made_of = hashlib.sha256(repr([version(one) for one in _LINKED] + [sys.executable]).encode())
    for path in sources:
        if "__pycache__" not in path.parts:
            made_of.update(f"{path.relative_to(_ROOT)}\0".encode() + path.read_bytes())
    folder = SHARED / "cpp" / made_of.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    # Not "CXX": pytest's own environment must not choose another. The system is that of the native executor:
    # zig's C++ library is compiled once for both.
    target = f"{platform.machine()}-linux-gnu.2.28"
    command = [
        "make",
        "-s",
        "-C",
        str(_ROOT / "examples" / "cpp"),
        f"PYTHON={sys.executable}",
        f"OUT={folder}",
    ]
    command += [f"CXX={sys.executable} -m ziglang c++ -target {target}", str(folder / name)]
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    return folder / name


@functools.cache
def zoo_model(name: str, format_name: str) -> Path:
    """A model of the zoo in one format: "onnx", "pt2" or "tflite"."""
    from research.models import export  # here, because it brings torch

    sources = sorted(Path(export.__file__).parent.glob("*.py"))
    made_of = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()
    folder = SHARED / "models" / made_of[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.{format_name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return export.export(name, folder, format_name)


def share_with(cache: Path) -> None:
    """Make the product's cache of a test, in which it finds what is slow to make and the same for every test.

    Args:
        cache: `$XDG_CACHE_HOME` of the test.
    """
    own = cache / "edgetlm"
    own.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in _KEPT:
        shared = SHARED / "edgetlm" / name
        shared.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (own / name).exists():
            (own / name).symlink_to(shared)


@contextmanager
def _user_cache(folder: Path) -> Iterator[None]:
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["XDG_CACHE_HOME"]
        else:
            os.environ["XDG_CACHE_HOME"] = before


def main(arguments: Sequence[str] | None = None) -> None:
    """Makes the executors. Zig's C++ library of each architecture lies where the tests find it afterwards."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=0, help="compilers at once (default: one for each core)")
    jobs = parser.parse_args(arguments).jobs
    os.environ["ZIG_GLOBAL_CACHE_DIR"] = str(ZIG)
    for name in ARCHITECTURES:
        print(executor_for(name, jobs))


if __name__ == "__main__":
    main()
