"""A machine with a CUDA GPU, made of its CPU: a driver, and kernels as code of this machine.

Everything of the product but the cubins is as on a Jetson: the bundle, TVM's CUDA runtime, the CUDA runtime
library over the driver, the executor. `emulated_cubin` takes the place of NVIDIA's compiler.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import tvm

from host.build.cuda.nvrtc import Cubin, Nvrtc
from host.build.linker import zig_executable
from host.payload.cuda import cuda_runtime
from tests.cuda_emulator.source import compiled, emulator_text, entries, host_source
from tests.integration.native.process import Executor
from tests.shared_cache import executor_for

_MARK = "0x0100000000000000ull"


def emulated_cubin(source: str, architecture: str = "x86_64") -> bytes:
    """CUDA source as a library that the emulated driver loads."""
    runners = []
    for name, kinds in entries(source).items():
        passed = [
            f"({kind})(*(char**)arguments[{number}] - {_MARK})"
            if "*" in kind
            else f"*({kind}*)arguments[{number}]"
            for number, kind in enumerate(kinds)
        ]
        sizes = ", ".join([str(len(kinds)), *("0" if "*" in kind else f"sizeof({kind})" for kind in kinds)])
        runners.append(
            f"static void call_{name}() {{ {name}({', '.join(passed)}); }}\n"
            f'extern "C" const unsigned char arguments_{name}[] = {{{sizes}}};\n'
            f'extern "C" int run_{name}(void** given, const int* blocks, const int* threads) {{\n'
            f"  kernel = call_{name};\n  return run(given, blocks, threads);\n}}\n"
        )
    return compiled(host_source(source, "\n".join(runners)), architecture)


def take_the_place_of_nvrtc(monkeypatch: pytest.MonkeyPatch, architecture: str = "x86_64") -> None:
    """Have every cubin made for the emulated driver from here on."""

    def compile_emulated(self: Nvrtc, source: str, arch: str) -> Cubin:
        return Cubin(emulated_cubin(source, architecture), ())

    monkeypatch.setattr(Nvrtc, "compile", compile_emulated)
    # Caches tell them from real ones.
    made_by = hashlib.sha256(emulator_text().encode() + Path(__file__).read_bytes()).hexdigest()
    monkeypatch.setattr("host.build.cuda.library.CUBIN_VERSION", f"emulated {architecture} {made_by}")


def emulated_driver(folder: Path, architecture: str = "x86_64") -> Path:
    """Build the driver, libcuda.so.1, in a folder."""
    output = folder / "libcuda.so.1"
    command = [str(zig_executable()), "cc", "-shared", "-fPIC", "-O2", "-fno-sanitize=all"]
    command += ["-target", f"{architecture}-linux-gnu.2.31", f"-Wl,-soname,{output.name}", "-pthread"]
    command += ["-o", str(output), str(Path(__file__).with_name("driver.c"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]
    return output


def machine_with_gpu(folder: Path) -> dict[str, str]:
    """Lay out TVM's runtime as a payload for a GPU does, beside the driver.

    Returns:
        Environment variables of processes on the machine.
    """
    runtime = folder / "tvm" / "lib"
    runtime.mkdir(parents=True)
    installed = Path(tvm.__file__).parent / "lib"
    for name in ("libtvm_runtime.so", "libtvm_runtime_extra.so", "libtvm_runtime_cuda.so"):
        (runtime / name).symlink_to(installed / name)
    library = cuda_runtime("x86_64")
    (runtime / library.name).symlink_to(library)
    emulated_driver(folder)
    return {
        "EDGETLM_RUNTIME_LIB": str(runtime / "libtvm_runtime.so"),
        "LD_LIBRARY_PATH": f"{folder}:{runtime}",
    }


@contextmanager
def native_session(
    bundle: Path, folder: Path, machine: Mapping[str, str], patch: pytest.MonkeyPatch, limit_s: float = 60.0
) -> Iterator[Executor]:
    """A native executor on the emulated machine, with a bundle loaded.

    Args:
        bundle: that it loads.
        folder: in which its session has a folder.
        machine: environment of processes on the emulated machine.
        patch: sets that environment.
        limit_s: of one command.
    """
    patch.setenv("LD_LIBRARY_PATH", machine["LD_LIBRARY_PATH"])
    with Executor([str(executor_for("x86_64"))], folder / "session", limit_s) as running:
        assert running.ask("load", path=str(bundle), trust="unsigned")[0]["ok"]
        yield running


def native_launch(running: Executor) -> str:
    """How a native executor starts the kernels of the model that it measures."""
    plan = {"energy": False, "min_repeats": 1, "max_repeats": 3, "max_time_s": 0.1}
    measured = running.ask("measure", plan=plan)[0]
    assert measured["ok"], measured
    return str(measured["conditions"]["launch"])
