"""A lowered model and its scheduled kernels to one library that the runtime alone can load."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import tvm
from tvm import relax

from host.build.cache import KernelCache
from host.build.cuda.library import link_cuda
from host.build.cuda.model import build_cuda_kernels
from host.build.default_schedule import default_schedule
from host.build.kernel import KernelObject, compile_kernel, first_line
from host.build.linker import link_kernels
from host.build.memory.crossings import CPU, GPU, Crossing, functions_for_cpu, with_crossings
from host.build.memory.direct import with_direct_arguments
from host.build.memory.lent import with_lent_tensors
from host.build.memory.plan import GPU_ALIGNMENT, entries_of, is_whole, plan_memory, planned_bytes
from host.build.memory.workspace import Workspace, largest
from host.build.object_code import object_code
from host.build.shapes import order_sizes, share_shapes
from host.build.target import architecture_of
from host.build.threads import Progress, compiled_with_defaults
from host.errors import BuildError
from host.files import writing
from host.model import LoweredModel
from host.tensor_ir.processor import is_for_cpu


@dataclass(frozen=True)
class BuildStats:
    """The times and counts of building a model.

    Attributes:
        seconds: wall time of everything.
        kernels: functions in the library.
        compiled: distinct objects that were compiled.
        cached: distinct objects that came from the cache.
        defaulted: names of functions that run on a default schedule, in order.
        refused: reason by name for those of them whose given schedule does not compile.
        library_bytes: size of the library.
        activations_bytes: of the memory that is planned for intermediate tensors.
        workspace: scratch memory of the kernels; None where it depends on the length of an input.
        crossings: tensors that are copied between a GPU and the CPU in every run.
    """

    seconds: float
    kernels: int
    compiled: int
    cached: int
    defaulted: tuple[str, ...]
    refused: dict[str, str]
    library_bytes: int
    activations_bytes: int
    workspace: Workspace | None
    crossings: tuple[Crossing, ...] = ()


class ModelCode(NamedTuple):
    """A model as bytecode of the virtual machine, without its kernels.

    Attributes:
        executable: of the machine.
        functions: that it calls, by name.
        activations_bytes: that its intermediate tensors take, with what crosses on both processors, as on a
            GPU with memory of its own: the same bundle is for those and for others.
        crossings: tensors that are copied between a GPU and the CPU in every run.
    """

    executable: tvm.runtime.Module
    functions: dict[str, tvm.tirx.PrimFunc]
    activations_bytes: int
    crossings: tuple[Crossing, ...] = ()


def build_model(
    lowered: LoweredModel,
    kernels: Mapping[str, tvm.tirx.PrimFunc] | Iterable[tuple[str, tvm.tirx.PrimFunc]],
    output: Path,
    progress: Progress | None = None,
    *,
    cache: KernelCache | None = None,
    workers: int | None = None,
    cuda_major: int = 12,
) -> BuildStats:
    """Compile a model to a library whose `vm_load_executable` gives the virtual machine.

    Parameters stay outside: `main` takes the inputs, the state and then `lowered.parameters`.

    Args:
        lowered: the model after fusion.
        kernels: scheduled function by name in `lowered.module`; the rest, and those that do not
            compile, get the default schedule. Of pairs, the first ones are compiled while the next ones are
            scheduled.
        output: path of the library.
        progress: receives the number of kernels that are done.
        cache: where kernels are looked up and kept; None compiles all.
        workers: threads that compile; the machine's usable cores if None.
        cuda_major: CUDA major version of the board's driver, where the target is its GPU.

    Raises:
        BuildError: a kernel does not compile even unscheduled, or linking fails.
        DeviceFull: no space left.
    """
    start = time.monotonic()
    target = lowered.target
    given: dict[str, tvm.tirx.PrimFunc] = {}
    if target.kind.name == "cuda":
        given.update(kernels)
        executable, functions, activations_bytes, crossings = lower_to_executable(lowered.module, target)
        on_cpu = {name: function for name, function in functions.items() if _runs_on_cpu(function)}
        on_gpu = {name: function for name, function in functions.items() if name not in on_cpu}
        made, refused = build_cuda_kernels(on_gpu, given, target, progress, cache, workers, cuda_major)
        beside, _ = compile_all(on_cpu, on_cpu.__getitem__, {}, target.host, None, cache, workers)
        link_cuda(executable, made, output, target, beside)
        # Those of the CPU are a few kilobytes, of another memory.
        workspace = largest(kernel.workspace for kernel in made.values())
        distinct = len(made) + len(beside)
        cached = sum(kernel.from_cache for kernel in made.values())
        cached += sum(kernel.from_cache for kernel in beside.values())
    else:
        code, objects, refused = _compiled_model(lowered, kernels, given, progress, cache, workers)
        executable, functions, activations_bytes, crossings = code
        with tempfile.TemporaryDirectory(prefix="edgetlm-") as folder:
            packed = packed_executable(executable, Path(folder), target)
            link_kernels(objects, output, architecture_of(target), [packed])
        workspace = largest(kernel.workspace for kernel in objects.values())
        origins = {kernel.key: kernel.from_cache for kernel in objects.values()}
        distinct, cached = len(origins), sum(origins.values())
    if cache is not None and cached < distinct:
        cache.prune()
    return BuildStats(
        seconds=time.monotonic() - start,
        kernels=len(functions),
        compiled=distinct - cached,
        cached=cached,
        defaulted=tuple(name for name in functions if name not in given or name in refused),
        refused=refused,
        library_bytes=output.stat().st_size,
        activations_bytes=activations_bytes,
        workspace=workspace,
        crossings=crossings,
    )


def _compiled_model(
    lowered: LoweredModel,
    kernels: Mapping[str, tvm.tirx.PrimFunc] | Iterable[tuple[str, tvm.tirx.PrimFunc]],
    given: dict[str, tvm.tirx.PrimFunc],
    progress: Progress | None,
    cache: KernelCache | None,
    workers: int | None,
) -> tuple[ModelCode, dict[str, KernelObject], dict[str, str]]:
    """The bytecode of a model for a CPU, and the objects of its functions, which are compiled meanwhile.

    Arguments are those of `build_model`; `given` receives the scheduled functions.
    """
    code: list[ModelCode] = []
    begun: set[str] = set()

    def names() -> Iterator[str]:
        for name, function in kernels.items() if isinstance(kernels, Mapping) else kernels:
            given[name] = function
            # Most of these become views, which call no kernel.
            if not relax.analysis.has_reshape_pattern(lowered.module[name]):
                begun.add(name)
                yield name
        code.append(lower_to_executable(lowered.module, lowered.target))
        yield from (name for name in code[0].functions if name not in begun)

    def function_of(name: str) -> tvm.tirx.PrimFunc:
        return lowered.module[name] if name in begun else code[0].functions[name]

    objects, refused = compile_all(names(), function_of, given, lowered.target, progress, cache, workers)
    functions = code[0].functions
    return (
        code[0],
        {name: objects[name] for name in functions},
        {name: why for name, why in refused.items() if name in functions},
    )


def _runs_on_cpu(function: tvm.tirx.PrimFunc) -> bool:
    """Whether a function of a GPU's model runs on the CPU: those that compute sizes from sizes do too."""
    return is_for_cpu(function) or "tirx.is_host_func" in (function.attrs or {})


def lower_to_executable(module: tvm.IRModule, target: tvm.target.Target) -> ModelCode:
    """Plan memory and generate the virtual machine's bytecode.

    Raises:
        BuildError: a pass or the code generator refuses the module.
    """
    entries = entries_of(module)
    before = tvm.transform.Sequential(
        [
            relax.backend.DispatchSortScan(),
            relax.transform.LegalizeOps(),
            relax.transform.RewriteDataflowReshape(),
            # After reshapes became views nothing calls their kernels any more.
            relax.transform.DeadCodeElimination(list(entries)),
            relax.transform.ToNonDataflow(),
            relax.transform.RemovePurityChecking(),
            relax.transform.CallTIRRewrite(),
        ]
    )
    try:
        with target:
            crossings: tuple[Crossing, ...] = ()
            module = before(module)
            if target.kind.name == "cuda":
                module, crossings = with_crossings(module)
            whole = target.kind.name != "cuda" and is_whole(module)
            module = _with_planned_memory(module, target, bool(functions_for_cpu(module)), whole)
            activations_bytes = planned_bytes(module) + sum(one.taken_bytes for one in crossings)
            module = with_direct_arguments(module, views=target.kind.name != "cuda")
            module = with_lent_tensors(module) if whole else module
            module = relax.transform.VMShapeLower()(share_shapes(_with_allocations(module, whole)))
            module = relax.transform.AttachGlobalSymbol()(order_sizes(module))
        builder = relax.ExecBuilder()
        code_generator = tvm.get_global_func("relax.VMCodeGen")
        rest = code_generator(builder, module)
        executable = tvm.get_global_func("relax.VMLink")(builder, target, None, [], {})
    except (TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise BuildError(f"the model's graph does not compile: {first_line(error)}") from error
    functions = {
        variable.name_hint: function
        for variable, function in rest.functions.items()
        if isinstance(function, tvm.tirx.PrimFunc)
    }
    return ModelCode(executable, dict(sorted(functions.items())), activations_bytes, crossings)


def _with_allocations(module: tvm.IRModule, whole: bool) -> tvm.IRModule:
    """The module with calls of the runtime for its tensors; where `is_whole` holds, none is released."""
    released = [] if whole else [relax.transform.KillAfterLastUse()]
    passes = [
        relax.transform.LowerAllocTensor(),
        *released,
        relax.transform.LowerRuntimeBuiltin(),
        relax.transform.ComputePrimValue(),
    ]
    return tvm.transform.Sequential(passes)(module)


def _with_planned_memory(
    module: tvm.IRModule, target: tvm.target.Target, crosses: bool, whole: bool
) -> tvm.IRModule:
    """The module with places for its intermediate tensors, in a block of each processor."""
    if target.kind.name == "cuda":
        module = plan_memory(module, CPU) if crosses else module
        return plan_memory(module, GPU, alignment=GPU_ALIGNMENT)
    return plan_memory(module, once=whole)


def compile_all(
    names: Iterable[str],
    function_of: Callable[[str], tvm.tirx.PrimFunc],
    kernels: Mapping[str, tvm.tirx.PrimFunc],
    target: tvm.target.Target,
    progress: Progress | None,
    cache: KernelCache | None,
    workers: int | None,
) -> tuple[dict[str, KernelObject], dict[str, str]]:
    """Compile every function in threads: TVM holds no interpreter lock while LLVM works.

    Args:
        names: of the functions.
        function_of: the unscheduled function of a name.
        kernels: scheduled ones by name; they are there when their names are.
        target: that they are compiled for.
        progress: receives the number of kernels that are done.
        cache: where kernels are looked up and kept.
        workers: threads that compile; the machine's usable cores if None.

    Returns:
        The objects by name, and the reasons why given schedules were not used.
    """

    def given(name: str) -> KernelObject:
        return compile_kernel(kernels[name], name, target, cache)

    def default(name: str) -> KernelObject:
        try:
            return compile_kernel(default_schedule(function_of(name)), name, target, cache)
        except BuildError:
            return compile_kernel(function_of(name), name, target, cache)

    return compiled_with_defaults(names, kernels, given, default, progress, workers)


def packed_executable(executable: tvm.runtime.Module, folder: Path, target: tvm.target.Target) -> Path:
    """The virtual machine's bytecode as an object in a folder, to be linked with kernels."""
    pack = tvm.get_global_func("runtime.ModulePackImportsToLLVM")
    packed = folder / "executable.o"
    with writing(packed):
        packed.write_bytes(object_code(pack(executable, False, str(target), "")))
    return packed
