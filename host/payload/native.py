"""The native executor: one executable for boards that TVM's wheels do not fit.

Built with zig out of the runtime's sources in the apache-tvm and apache-tvm-ffi wheels, small support headers
of our own, and `device_agent/native`. Objects and executables are kept by the content that they were made of.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from host.build.cache import KernelCache
from host.build.linker import zig_executable
from host.errors import BuildError, PayloadError
from host.execution.cores import usable_cores
from host.files import is_sealed, seal
from host.payload.contract_header import contract_headers, write_headers
from host.payload.native_crypto import crypto_key, crypto_source, crypto_units
from host.places import cache_root, zig_cache

EXECUTABLE = "edgetlm-executor"
# The oldest C library that each is built for: JetPack 5's on aarch64, the first riscv64 boards' elsewhere.
_TARGETS = {
    "aarch64": "aarch64-linux-gnu.2.28",
    "riscv64": "riscv64-linux-gnu.2.31",
    "x86_64": "x86_64-linux-gnu.2.28",
}
_FLAGS = (
    *("-std=c++20", "-g0", "-DNDEBUG", "-fno-sanitize=all", "-ffunction-sections", "-fdata-sections"),
    *("-fvisibility=hidden", "-fvisibility-inlines-hidden"),
    *("-DTVM_FFI_USE_LIBBACKTRACE=0", "-DTVM_FFI_BACKTRACE_ON_SEGFAULT=0"),
)
# What zig calls -O1 is its -O2, which takes a third longer.
_OPTIMISE = {"little": ("-O2", "-Xclang", "-O1"), "well": ("-O2",)}
# -O2 compiles no object here, for all of them are made: applications are linked with it and without symbols,
# and zig keeps a C++ library for each such choice, whose compilation takes 40% of a build.
# One executable: with zig, each shared library would carry a C++ runtime of its own, and exceptions would not
# cross from one to another. Kernels' libraries find the runtime in it through -rdynamic.
_LINK_FLAGS = ("-O2", "-rdynamic", "-s", "-Wl,--gc-sections", "-lm", "-ldl", "-lpthread")
_LIMIT_BYTES = 1 << 29
_KEPT = 4

# Called with what was finished, how many steps are done, and of how many.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class _Unit:
    """Sources that are compiled at once.

    Attributes:
        name: of its file in device_agent/native/units.
        optimise: "well" where the interpreter's loop is, which is worth the compiler's time, else "little".
        own: whether it is the executor itself and not of the wheels.
    """

    name: str
    optimise: str
    own: bool = False


_UNITS = (
    _Unit("ffi", "little"),
    _Unit("runtime", "little"),
    _Unit("vm", "well"),
    _Unit("contrib", "little"),
    _Unit("rpc", "little"),
    _Unit("cuda", "little", own=True),
    _Unit("contract", "little", own=True),
    _Unit("executor", "little", own=True),
)


@dataclass(frozen=True)
class _Sources:
    """Folders that a build reads."""

    native: Path
    tvm: Path
    ffi: Path

    def content_hash(self, own: bool) -> str:
        """SHA-256 of all files that a unit may include; the executor's own only where it is of them."""
        hasher = hashlib.sha256("".join(contract_headers().values()).encode() if own else b"")
        folders = [
            self.native / "include",
            self.native / "support",
            self.tvm / "include",
            self.ffi / "include",
        ]
        own_folders = [self.native / "executor", self.native / "contract", self.native / "cuda"]
        folders += own_folders if own else [self.tvm / "src" / "runtime", self.ffi / "src"]
        for folder in folders:
            for path in sorted(folder.rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    hasher.update(f"{path.relative_to(folder)}\0".encode())
                    hasher.update(hashlib.sha256(path.read_bytes()).digest())
        return hasher.hexdigest()


def native_executor(
    architecture: str, jobs: int = 0, progress: Progress | None = None, cache: Path | None = None
) -> Path:
    """The executor's executable for an architecture; built if it has not been yet.

    Args:
        architecture: "riscv64", "aarch64" or "x86_64".
        jobs: compilers that run at once; as many as there are cores by default.
        progress: called after each step of a build.
        cache: folder of what was built; the user's cache by default.

    Raises:
        PayloadError: it cannot be built, with the compiler's first error.
    """
    if architecture not in _TARGETS:
        known = ", ".join(sorted(_TARGETS))
        raise PayloadError(f"there is no native executor for {architecture}; there is one for {known}")
    folder = cache or cache_root() / "native"
    try:
        sources = _sources()
        keys = _keys(architecture, sources)
        whole = hashlib.sha256("\0".join([*sorted(keys.values()), *_LINK_FLAGS]).encode()).hexdigest()
        output = folder / f"{architecture}-{whole[:16]}" / EXECUTABLE
        if is_sealed(output):
            return output
        with _locked(folder, architecture):
            # Another process may have built it while this one waited.
            if not is_sealed(output):
                build = _Build(architecture, sources, keys, folder, jobs, progress)
                build.run(output)
                _forget_old(folder, architecture)
        return output
    except OSError as error:
        raise PayloadError(
            f"the native executor for {architecture} cannot be built in {folder}: {error.strerror or error};"
            " free some space or set XDG_CACHE_HOME"
        ) from error


def _sources() -> _Sources:
    def package(name: str, part: str, pin: str) -> Path:
        spec = importlib.util.find_spec(name)
        for location in (spec.submodule_search_locations or ()) if spec else ():
            if (Path(location) / part).is_dir():
                return Path(location)
        raise PayloadError(
            f"the native executor is built from {part} of {pin}, which lacks it: install {pin}"
        )

    native = package("device_agent", "native", "edgetlm") / "native"
    return _Sources(
        native, package("tvm", "src/runtime", "apache-tvm"), package("tvm_ffi", "src/ffi", "apache-tvm-ffi")
    )


def _keys(architecture: str, sources: _Sources) -> dict[str, str]:
    """What each object of an executable is kept by."""
    keys = {unit.name: _key(unit, architecture, sources) for unit in _UNITS}
    version = importlib.metadata.version("ziglang")
    for name, options in crypto_units(architecture).items():
        keys[name] = crypto_key(sources.native, _TARGETS[architecture], version, options)
    return keys


def _key(unit: _Unit, architecture: str, sources: _Sources) -> str:
    made_of = [
        importlib.metadata.version("ziglang"),
        _TARGETS[architecture],
        *_OPTIMISE[unit.optimise],
        *_FLAGS,
    ]
    made_of += [sources.content_hash(unit.own), (sources.native / "units" / f"{unit.name}.cc").read_text()]
    return hashlib.sha256("\0".join(made_of).encode()).hexdigest()


@contextlib.contextmanager
def _locked(folder: Path, name: str) -> Iterator[None]:
    """One build of an architecture at a time: others wait for it and find its result."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _forget_old(folder: Path, architecture: str) -> None:
    """Remove executables of earlier sources but for the latest, which another host may be sending."""
    found = sorted(folder.glob(f"{architecture}-*"), key=lambda path: path.stat().st_mtime)
    for old in found[:-_KEPT]:
        shutil.rmtree(old, ignore_errors=True)


class _Build:
    """One build.

    Args:
        architecture: of `_TARGETS`.
        sources: folders to read.
        keys: of the units' objects.
        folder: of the cache.
        jobs: compilers at once, 0 for as many as there are cores.
        progress: receives each step.
    """

    def __init__(
        self,
        architecture: str,
        sources: _Sources,
        keys: dict[str, str],
        folder: Path,
        jobs: int,
        progress: Progress | None,
    ) -> None:
        self._architecture = architecture
        self._sources = sources
        self._keys = keys
        self._folder = folder
        self._objects = KernelCache(folder / "objects", _LIMIT_BYTES)
        self._jobs = jobs or usable_cores()
        self._progress = progress or (lambda *_: None)
        self._zig = _zig()

    def run(self, output: Path) -> None:
        """Compile what is missing, and link."""
        with tempfile.TemporaryDirectory(prefix="edgetlm-native-") as name:
            scratch = Path(name)
            missing = self._restore(scratch)
            steps, total = len(self._keys) - len(missing), len(self._keys) + 1
            if missing:
                _overlay(scratch, self._sources)
            with ThreadPoolExecutor(self._jobs) as pool:
                running = {pool.submit(self._compile, name, scratch): name for name in missing}
                try:
                    for done in as_completed(running):
                        done.result()
                        steps += 1
                        self._progress(f"compiled {running[done]}", steps, total)
                except PayloadError:
                    pool.shutdown(cancel_futures=True)
                    raise
            self._link(scratch, output)
            self._progress(f"linked {output.name}", total, total)
        self._objects.prune()

    def _restore(self, scratch: Path) -> list[str]:
        missing = []
        for name, key in self._keys.items():
            content = self._objects.get(key)
            if content is None:
                missing.append(name)
            else:
                (scratch / f"{name}.o").write_bytes(content)
        return missing

    def _compile(self, name: str, scratch: Path) -> None:
        target = scratch / f"{name}.o"
        crypto = crypto_units(self._architecture)
        if name in crypto:
            source = crypto_source(self._sources.native)
            self._run_zig("build-obj", [*crypto[name], f"-femit-bin={target}", str(source)], name, scratch)
        else:
            [unit] = [unit for unit in _UNITS if unit.name == name]
            self._compile_cxx(unit, target, scratch)
        self._objects.put(self._keys[name], target.read_bytes())

    def _compile_cxx(self, unit: _Unit, target: Path, scratch: Path) -> None:
        sources, tree = self._sources, scratch / "tree"
        folders = [sources.native, tree, sources.native / "include", *_overlaid(tree)]
        folders += [root / part for root in (sources.tvm, sources.ffi) for part in ("include", "src")]
        # Paths of this host would make objects differ from another's.
        hidden = {sources.native: "native", sources.tvm: "tvm", sources.ffi: "tvm_ffi", tree: "tree"}
        command = ["-c", str(sources.native / "units" / f"{unit.name}.cc"), "-o", str(target)]
        command += [*_OPTIMISE[unit.optimise], *_FLAGS, *(f"-I{folder}" for folder in folders)]
        command += [f"-ffile-prefix-map={folder}={name}" for folder, name in hidden.items()]
        self._run_zig("c++", command, unit.name, scratch)

    def _link(self, scratch: Path, output: Path) -> None:
        partial = scratch / EXECUTABLE
        objects = [str(scratch / f"{name}.o") for name in self._keys]
        self._run_zig("c++", [*objects, "-o", str(partial), *_LINK_FLAGS], "link", scratch)
        partial.chmod(0o755)
        output.parent.mkdir(parents=True, exist_ok=True)
        # The scratch folder may lie in another file system.
        beside = output.with_name(f".{output.name}.{os.getpid()}.partial")
        beside.write_bytes(partial.read_bytes())
        beside.chmod(0o755)
        seal(beside, output)

    def _run_zig(self, tool: str, arguments: Sequence[str], what: str, scratch: Path) -> None:
        environment = dict(os.environ, ZIG_LOCAL_CACHE_DIR=str(scratch / "zig"))
        # zig keeps the C++ library that it compiled in the one, and copies of our objects in the other.
        environment["ZIG_GLOBAL_CACHE_DIR"] = str(zig_cache(self._folder))
        command = [str(self._zig), tool, "-target", _TARGETS[self._architecture], *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = (done.stderr or done.stdout).splitlines()
            errors = [line for line in lines if "error" in line] or lines or ["no reason given"]
            raise PayloadError(
                f"the native executor for {self._architecture} cannot be built: {what}: {errors[0].strip()};"
                " install the versions of apache-tvm, apache-tvm-ffi and ziglang that edgetlm pins"
            )


def _zig() -> Path:
    try:
        return zig_executable()
    except BuildError as error:
        raise PayloadError(f"the native executor cannot be built: {error}") from error


def _overlay(scratch: Path, sources: _Sources) -> None:
    """Folders from which the runtime's relative includes lead to our support headers, and the bounds."""
    tree = scratch / "tree"
    for folder in _overlaid(tree):
        folder.mkdir(parents=True, exist_ok=True)
    (tree / "src" / "support").symlink_to(sources.native / "support")
    write_headers(tree)
    half = tree / "3rdparty" / "compiler-rt"
    half.mkdir(parents=True)
    (half / "builtin_fp16.h").symlink_to(sources.native / "include" / "builtin_fp16.h")


def _overlaid(tree: Path) -> list[Path]:
    runtime = tree / "src" / "runtime"
    return [runtime, runtime / "rpc", runtime / "extra" / "contrib" / "sort"]
