"""Brings TVM's CUDA runtime into a process that has no GPU, so that its modules can be made and stored.

TVM makes a module of cubins only where its CUDA runtime is loaded, and that wants the driver and the CUDA
runtime library. Where they are missing, empty libraries in their place, in which every function fails with
"no device", are enough to make modules; nothing can be run.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import struct
import subprocess
import tempfile
from pathlib import Path

import tvm

from host.build.linker import zig_executable
from host.errors import BuildError
from host.files import is_sealed, seal
from host.places import cache_root, zig_cache

_FACTORY = "ffi.Module.create.cuda"
_DYNAMIC_SYMBOLS, _DYNAMIC = 11, 6
_NEEDED = 1
_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
# cudaErrorNoDevice and CUDA_ERROR_NO_DEVICE.
_NO_DEVICE = 100
_TEXT = '"no CUDA device"'
# Functions that give a text instead of a code.
_TEXTS = {
    "cuGetErrorName": f"int cuGetErrorName(int code, const char** text) {{ *text = {_TEXT}; return 0; }}",
    "cuGetErrorString": f"int cuGetErrorString(int code, const char** text) {{ *text = {_TEXT}; return 0; }}",
    "cudaGetErrorName": f"const char* cudaGetErrorName(int code) {{ return {_TEXT}; }}",
    "cudaGetErrorString": f"const char* cudaGetErrorString(int code) {{ return {_TEXT}; }}",
}


def load_cuda_runtime() -> None:
    """Make TVM's CUDA modules available, with the real driver where there is one.

    Raises:
        BuildError: this TVM has no CUDA runtime, or the stand-ins cannot be made.
    """
    if tvm.get_global_func(_FACTORY, allow_missing=True) is not None:
        return
    runtime = _runtime_library()
    try:
        ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL)
    except OSError:
        for path in _stub_libraries(runtime):
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        try:
            ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise BuildError(f"TVM's CUDA runtime does not load: {error}") from error
    if tvm.get_global_func(_FACTORY, allow_missing=True) is None:
        raise BuildError(f"{runtime.name} registers no {_FACTORY}; install apache-tvm as pinned")


def _runtime_library() -> Path:
    spec = importlib.util.find_spec("tvm")
    folder = Path(spec.origin).parent if spec is not None and spec.origin else Path()
    path = folder / "lib" / "libtvm_runtime_cuda.so"
    if not path.is_file():
        raise BuildError(f"{path.name} is not in the installed TVM; install apache-tvm as pinned")
    return path


def _stub_libraries(runtime: Path) -> list[Path]:
    """Libraries with the functions that the runtime asks of CUDA; made once, then kept."""
    folder = cache_root() / "cuda-stand-ins" / str(tvm.__version__)
    needed, symbols = _wants(runtime.read_bytes())
    made = []
    for library in needed:
        if not library.startswith("libcuda"):
            continue
        of_runtime = library.startswith("libcudart")
        names = sorted(name for name in symbols if name.startswith("cuda") == of_runtime)
        path = folder / library
        if not is_sealed(path):
            _build(path, names, library if of_runtime else "")
        made.append(path)
    return made


def _build(path: Path, names: list[str], version: str) -> None:
    """Compile a library of functions that fail; `version` is that of its symbols, "" for none."""
    lines = [_TEXTS.get(name, f"int {name}(void) {{ return {_NO_DEVICE}; }}") for name in names]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".partial-") as name:
            folder = Path(name)
            source, script, output = folder / "stand_in.c", folder / "versions", folder / path.name
            source.write_text("\n".join(lines) + "\n")
            script.write_text(f"{version} {{ global: *; }};\n")
            command = [str(zig_executable()), "cc", "-shared", "-fPIC", "-O1", f"-Wl,-soname,{path.name}"]
            command += [f"-Wl,--version-script={script}"] if version else []
            done = subprocess.run(
                [*command, "-o", str(output), str(source)],
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(zig_cache(cache_root()))},
            )
            if done.returncode != 0:
                reason = (done.stderr.strip().splitlines() or ["no message"])[0]
                raise BuildError(f"the stand-in for {path.name} does not compile: {reason}")
            seal(output, path)
    except OSError as error:
        raise BuildError(f"making {path}: {error.strerror or error}; free space there") from error


def _wants(content: bytes) -> tuple[list[str], set[str]]:
    """Libraries that a shared library needs, and CUDA functions that it leaves undefined."""
    table = struct.unpack_from("<Q", content, 40)[0]
    size, count = struct.unpack_from("<HH", content, 58)
    headers = [_SECTION_HEADER.unpack_from(content, table + i * size) for i in range(count)]
    needed: list[str] = []
    symbols: set[str] = set()
    for _, kind, _, _, offset, length, link, _, _, _ in headers:
        strings = headers[link][4]
        if kind == _DYNAMIC:
            for at in range(offset, offset + length, 16):
                tag, value = struct.unpack_from("<qQ", content, at)
                needed += [_string(content, strings + value)] if tag == _NEEDED else []
        elif kind == _DYNAMIC_SYMBOLS:
            for at in range(offset, offset + length, _SYMBOL.size):
                name, _, _, section, _, _ = _SYMBOL.unpack_from(content, at)
                text = _string(content, strings + name)
                if section == 0 and text.startswith("cu"):
                    symbols.add(text)
    return needed, symbols


def _string(content: bytes, at: int) -> str:
    return content[at : content.index(b"\0", at)].decode()
