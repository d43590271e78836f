"""Scheduled functions with thread bindings to cubins, and to libraries that start them.

A library holds the host's part of every function as machine code and the device's part as cubins; CUDA
source is never in it.
"""

from __future__ import annotations

import contextvars
import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import tvm
import tvm_ffi

from host.build.cache import KernelCache
from host.build.cuda.barriers import with_barriers
from host.build.cuda.nvrtc import Cubin, Nvrtc, Resources
from host.build.cuda.pairs import with_pairs
from host.build.cuda.runtime import load_cuda_runtime
from host.build.kernel import KernelObject, first_line
from host.build.linker import link_kernels
from host.build.maxima import CUDA, keeping_nan
from host.build.memory.workspace import Workspace, workspace_of
from host.build.object_code import object_code
from host.build.target import architecture_of
from host.errors import BuildError
from host.files import writing
from host.tensor_ir.extremes import with_all_extremes

# Raised whenever the same source would give another cubin: options, headers.
CUBIN_VERSION = "cubin 1"


@dataclass(frozen=True)
class _Request:
    """The arguments of TVM's callback beyond the source, and its results."""

    compiler: Nvrtc
    arch: str
    cache: KernelCache | None
    made: list[tuple[Cubin, bool]]


_REQUEST: contextvars.ContextVar[_Request] = contextvars.ContextVar("edgetlm_cuda_request")


@dataclass(frozen=True, eq=False)
class CudaKernel:
    """A compiled function.

    Attributes:
        name: by which it is called.
        cubin: the device's part.
        host: the host's part, a relocatable object.
        module: the device's part as TVM's module.
        workspace: memory of the GPU that its kernels pass results in, beside their arguments.
        from_cache: whether the cubin was found rather than compiled.
    """

    name: str
    cubin: Cubin
    host: bytes
    module: tvm.runtime.Module
    workspace: Workspace | None
    from_cache: bool = False

    @property
    def resources(self) -> tuple[Resources, ...]:
        """Registers and memory of each device function."""
        return self.cubin.resources


def compile_cuda(
    function: tvm.tirx.PrimFunc,
    name: str,
    target: tvm.target.Target,
    cache: KernelCache | None = None,
    cuda_major: int = 12,
) -> CudaKernel:
    """Compile a scheduled function for a GPU.

    Args:
        function: with its loops bound to blocks and threads.
        name: to call it by, and for messages.
        target: of kind "cuda", with `arch` and a host.
        cache: where cubins are looked up and kept; None compiles always.
        cuda_major: CUDA major version of the board's driver.

    Raises:
        BuildError: TVM or the CUDA compiler refuses it, or one of them is missing.
    """
    if target.host is None:
        raise BuildError(f"kernel {name}: the CUDA target has no host; take it from the board")
    request = _Request(Nvrtc(cuda_major), str(target.attrs["arch"]), cache, [])
    load_cuda_runtime()
    _register()
    token = _REQUEST.set(request)
    try:
        host_module, device_module = _lower(function, name, target)
        module = tvm.get_global_func("target.build.cuda")(device_module, target)
        host = _host_object(host_module, target.host)
    except OSError as error:
        raise BuildError(f"kernel {name}: no space to compile in: {error.strerror or error}") from error
    except (TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise BuildError(f"kernel {name}: {first_line(error)}") from error
    finally:
        _REQUEST.reset(token)
    cubin, found = request.made[0]
    return CudaKernel(name, cubin, host, module, workspace_of(host_module), found)


def build_cuda_library(
    functions: Mapping[str, tvm.tirx.PrimFunc],
    output: Path,
    target: tvm.target.Target,
    cache: KernelCache | None = None,
    cuda_major: int = 12,
) -> dict[str, CudaKernel]:
    """Compile scheduled functions into one library.

    Args:
        functions: by the name to call them by; names must be C identifiers.
        output: path of the library.
        target: of kind "cuda", with `arch` and a host.
        cache: where cubins are looked up first.
        cuda_major: CUDA major version of the board's driver.

    Returns:
        The kernels by name.

    Raises:
        BuildError: compiling or linking fails.
    """
    kernels = {
        name: compile_cuda(function, name, target, cache, cuda_major) for name, function in functions.items()
    }
    link_cuda(None, kernels, output, target)
    return kernels


def link_cuda(
    executable: tvm.runtime.Module | None,
    kernels: Mapping[str, CudaKernel],
    output: Path,
    target: tvm.target.Target,
    beside: Mapping[str, KernelObject] | None = None,
) -> None:
    """Link host code, cubins and bytecode.

    Args:
        executable: of the virtual machine, None for a library of kernels alone.
        kernels: by the name to call them by.
        output: the library; written whole or not at all.
        target: of kind "cuda", with a host.
        beside: kernels that run on the CPU, by name.

    Raises:
        BuildError: linking fails.
        DeviceFull: no space left.
    """
    # The module of host code becomes the library, in whose imports its kernels look their device part up. An
    # executable of the virtual machine has one, empty so far.
    library = (
        executable.imports[0]
        if executable
        else tvm.get_global_func("target.build.llvm")(tvm.IRModule(), target.host)
    )
    for kernel in kernels.values():
        library.import_module(kernel.module)
    root = executable or library
    pack = tvm.get_global_func("runtime.ModulePackImportsToLLVM")
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as name:
        folder = Path(name)
        packed = folder / "device.o"
        try:
            code = object_code(pack(root, False, str(target.host), ""))
        except (TypeError, ValueError, RuntimeError) as error:
            raise BuildError(f"packing {output.name}: {first_line(error)}") from error
        with writing(folder):
            paths = [packed]
            packed.write_bytes(code)
            for number, kernel in enumerate(kernels.values()):
                paths.append(folder / f"host{number}.o")
                paths[-1].write_bytes(kernel.host)
        link_kernels(beside or {}, output, architecture_of(target), paths)


def _lower(
    function: tvm.tirx.PrimFunc, name: str, target: tvm.target.Target
) -> tuple[tvm.IRModule, tvm.IRModule]:
    """The host's and the device's functions, ready for code generation."""
    transform = tvm.tirx.transform
    lower, finalize_host, finalize_device = tvm.tirx.get_tir_pipeline("default")
    arch = str(target.attrs["arch"])
    function = with_pairs(with_barriers(function), arch)
    module = transform.BindTarget(target)(tvm.IRModule({name: function.with_attr("global_symbol", name)}))
    module = lower(module)
    host: dict[tvm.ir.GlobalVar, tvm.tirx.PrimFunc] = {}
    device: dict[tvm.ir.GlobalVar, tvm.tirx.PrimFunc] = {}
    for variable, body in module.functions.items():
        of_host = body.attrs["target"].kind.name == "llvm"
        if of_host:
            host[variable] = body.without_attr("tirx.is_entry_func")
        else:
            extremes = with_all_extremes(function, body.body, arch)
            device[variable] = body.with_body(keeping_nan(extremes, CUDA))
    if not device:
        raise ValueError("no loop is bound to threads; schedule it for the GPU")
    return (
        finalize_host()(transform.SkipAssert()(tvm.IRModule(host, attrs=module.attrs))),
        finalize_device()(tvm.IRModule(device, attrs=module.attrs)),
    )


def _host_object(module: tvm.IRModule, host: tvm.target.Target) -> bytes:
    return object_code(tvm.get_global_func("target.build.llvm")(module, host))


def _register() -> None:
    """Take the place of TVM's own compile callback, which wants a toolkit."""
    tvm_ffi.register_global_func("tvm_callback_cuda_compile", _compile_callback, override=True)


def _compile_callback(source: str) -> bytes:
    request = _REQUEST.get()
    cubin, found = _cached(source, request)
    request.made.append((cubin, found))
    return cubin.content


def _cached(source: str, request: _Request) -> tuple[Cubin, bool]:
    """A cubin from the cache, with its resources in front of it, or a new one; and whether it was there."""
    if request.cache is None:
        return request.compiler.compile(source, request.arch), False
    digest = hashlib.sha256()
    for part in (CUBIN_VERSION, request.compiler.version, request.arch, source):
        digest.update(part.encode())
        digest.update(b"\0")
    found = request.cache.get(digest.hexdigest())
    if found is not None:
        header, _, content = found.partition(b"\n")
        return Cubin(content, tuple(Resources(**entry) for entry in json.loads(header))), True
    cubin = request.compiler.compile(source, request.arch)
    header = json.dumps([asdict(entry) for entry in cubin.resources]).encode()
    request.cache.put(digest.hexdigest(), header + b"\n" + cubin.content)
    return cubin, False
