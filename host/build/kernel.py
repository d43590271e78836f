"""One scheduled function in, one relocatable object out, through the kernel cache."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import tvm
import tvm_ffi

from host.build.cache import KernelCache
from host.build.half_precision import has_half_conversions, without_half_conversions
from host.build.maxima import keeping_nan
from host.build.memory.workspace import Workspace, workspace_of
from host.build.object_code import object_code
from host.build.periodic_loads import has_periodic_loads, split_at_periods
from host.build.target import architecture_of
from host.errors import BuildError
from host.tensor_ir.bfloat16 import as_bits, has_bfloat16, with_bfloat16
from host.tensor_ir.byte_tables import byte_tables_for
from host.tensor_ir.extremes import with_all_extremes
from host.tensor_ir.functions.powers import with_vector_powers
from host.tensor_ir.interleaved_bytes import with_interleaved_bytes
from host.tensor_ir.joined_loops import with_joined_loops, with_wide_numbers
from host.tensor_ir.nested_names import without_nested_names
from host.tensor_ir.opaque import with_names_again, with_opaque_names
from host.tensor_ir.saturation import saturation_for
from host.tensor_ir.settled_choices import without_settled_choices
from host.tensor_ir.shared_conditions import with_shared_conditions, with_short_last_vectors
from host.tensor_ir.structural import mapped
from host.tensor_ir.tiles.imported import with_tile_functions
from host.tensor_ir.tiles.products import STAYS, with_tile_products
from host.tensor_ir.tiles.registers import has_tiles

# Raised whenever the same scheduled function would give another object: pipeline, options, symbols.
BUILD_VERSION = 20

SYMBOL_PREFIX = "__tvm_ffi_"

# Annotations of a buffer on the stack.
_ON_STACK = {STAYS: tvm.tirx.IntImm("bool", 1)}
# Bytes of one buffer on the stack: what all vector registers of any processor hold.
_LARGEST_ON_STACK = 4096


@dataclass(frozen=True)
class KernelObject:
    """A compiled kernel.

    Attributes:
        key: SHA-256 of scheduled function, target and versions.
        symbol: name of the function inside the object, made from the key.
        content: the ELF object.
        workspace: scratch memory that a call takes; None where it depends on the length of an input.
        from_cache: whether it was found rather than compiled.
    """

    key: str
    symbol: str
    content: bytes
    workspace: Workspace | None
    from_cache: bool


def kernel_key(function: tvm.tirx.PrimFunc, target: tvm.target.Target) -> str:
    """SHA-256 over all that decides the object; the function's own name does not."""
    anonymous = function.with_attr("global_symbol", "kernel")
    digest = hashlib.sha256()
    for part in (
        tvm.ir.save_json(anonymous),
        str(target),
        tvm.__version__,
        tvm_ffi.__version__,
        str(BUILD_VERSION),
    ):
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def compile_function(function: tvm.tirx.PrimFunc, symbol: str, target: tvm.target.Target) -> bytes:
    """Compile a scheduled function to an object, without the cache.

    TVM and LLVM run outside of the interpreter lock, so that threads compile in parallel.

    Raises:
        BuildError: TVM or LLVM refuses the function.
    """
    return _compiled(function, symbol, target)[0]


def _compiled(
    function: tvm.tirx.PrimFunc, symbol: str, target: tvm.target.Target
) -> tuple[bytes, Workspace | None]:
    """The object of a function, and the scratch memory that it takes."""
    try:
        lowered = lower_function(function, symbol, target)
        workspace = workspace_of(lowered)
        module = tvm.get_global_func("target.build.llvm")(lowered, target)
        return object_code(module), workspace
    except OSError as error:
        raise BuildError(f"no space to compile in: {error.strerror or error}") from error
    except (TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise BuildError(first_line(error)) from error


def lower_function(function: tvm.tirx.PrimFunc, symbol: str, target: tvm.target.Target) -> tvm.IRModule:
    """What TVM's own build does before code generation, with eighteen changes.

    - No assumption on the alignment of arguments beyond that of an element: TVM takes 64 bytes for
      granted without a check, and an array from elsewhere would kill the process. Unaligned vector
      moves cost nothing where the address is aligned.
    - No checks of the arguments' shapes: the virtual machine has checked the model's inputs, and the
      checks are a third of the compile time and two thirds of the object.
    - Vectors keep the length that the schedule gave them: see `_fixed_vectors`.
    - Register tiles are not taken from the heap: see `_allocate_on_stack`.
    - Loops whose loads start again are split: see `host.build.periodic_loads`.
    - Parts of a loop with borders that depend on a loop around it are one loop, and loops of 64 bits stay of
      one type where they are parted: see `host.tensor_ir.joined_loops`.
    - Choices that unrolling settles are gone before expressions are simplified: see
      `host.tensor_ir.settled_choices`.
    - Halves are converted by integer arithmetic where a processor cannot: see `host.build.half_precision`.
    - Maxima and minima with a number keep NaN: see `host.build.maxima`; those of many numbers keep infinities
      too: see `host.tensor_ir.extremes`.
    - Numbers of bfloat16 are multiplied and converted by x86's instructions: see `host.tensor_ir.bfloat16`.
    - Tables of 256 bytes are read by choices among bytes of registers: see `host.tensor_ir.byte_tables`.
    - Bytes of four vectors are put side by side by one instruction: see `host.tensor_ir.interleaved_bytes`.
    - What is rounded to bytes is bounded by the narrowing of AVX-512 and AArch64: see
      `host.tensor_ir.saturation`.
    - Marked products become those of registers of matrices: see `host.tensor_ir.tiles.products`.
    - Names have no bounds where indices become narrower: see `host.tensor_ir.opaque`.
    - Names that stand for much are stored: see `host.tensor_ir.nested_names`.
    - Powers of single precision become arithmetic: see `host.tensor_ir.functions.powers`.
    - A last vector that is not full becomes shorter ones that are, and so does the last one of a parted loop:
      see `host.tensor_ir.shared_conditions`.
    """
    transform = tvm.tirx.transform
    own_halves, bfloat16 = not has_half_conversions(target), has_bfloat16(target)
    architecture = architecture_of(target)
    narrowed = saturation_for(target) or (lambda body: body)
    tabulated = byte_tables_for(target) or (lambda body: body)
    tiled = with_tile_functions if has_tiles(target) else (lambda body: body)
    narrow = with_shared_conditions(function)
    named = (as_bits(narrow) if bfloat16 else narrow).with_attr("global_symbol", symbol)
    fixed = _fixed_vectors(target)
    bound = transform.BindTarget(fixed.with_host(fixed))(tvm.IRModule({symbol: named}))
    module = _lowered(bound)
    lowered = {
        # An entry function would define __tvm_ffi_main in every object.
        variable: body.with_body(
            _allocate_on_stack(
                _natural_alignment(
                    tabulated(
                        narrowed(
                            with_interleaved_bytes(
                                _halves(
                                    keeping_nan(
                                        with_all_extremes(
                                            function,
                                            with_vector_powers(tiled(body.body), _ON_STACK),
                                            architecture,
                                        ),
                                        architecture,
                                    ),
                                    own_halves,
                                    bfloat16,
                                ),
                                target,
                            )
                        )
                    )
                )
            )
        )
        .without_attr("tirx.is_entry_func")
        .with_attr("target", target.with_host(target))
        for variable, body in module.functions.items()
    }
    finalize = tvm.transform.Sequential([transform.LowerTVMBuiltin(), transform.LowerIntrin()])
    final = finalize(tvm.IRModule(lowered, attrs=module.attrs))
    return _mapped_bodies(final, lambda body: without_nested_names(body, _ON_STACK))


def _lowered(bound: tvm.IRModule) -> tvm.IRModule:
    """The passes of TVM's default pipeline on a module whose target is known.

    Those for GPUs and DSPs are left out. Where loops are split, common subexpressions get names after that.
    """
    transform, steps = tvm.tirx.transform, tvm.s_tir.transform
    flat = tvm.transform.Sequential(
        [
            steps.CanonicalizeLoop(),
            steps.LowerInitBlock(),
            steps.PlanAndUpdateBufferAllocationLocation(),
            steps.ConvertBlocksToOpaque(),
            steps.CompactBufferAllocation(),
            steps.LowerAutoCopy(),
            steps.LowerMatchBuffer(),
            steps.StmtSimplify(),
            steps.AnnotateIrregularLoop(),
            steps.InjectSoftwarePipeline(),
            steps.LowerOpaqueBlock(),
            transform.FlattenBuffer(),
            transform.BF16ComputeLegalize(),
        ]
    )
    unrolled = tvm.transform.Sequential(
        [
            transform.VectorizeLoop(True),
            steps.InjectVirtualThread(),
            steps.InjectDoubleBuffer(),
            transform.StorageRewrite(),
            steps.HoistIfThenElse(),
            transform.UnrollLoop(),
        ]
    )
    simplified = tvm.transform.Sequential(
        [
            steps.RenormalizeSplitPattern(),
            transform.StmtSimplify(),
            transform.RemoveNoOp(),
            steps.RewriteUnsafeSelect(),
        ]
    )
    called = tvm.transform.Sequential(
        [
            transform.FP8ComputeLegalize(),
            transform.VerifyMemory(),
            transform.AnnotateEntryFunc(),
            transform.SplitHostDevice(),
            transform.MakePackedAPI(),
            transform.FP8StorageLegalize(),
            transform.BF16StorageLegalize(),
            transform.SkipAssert(),
        ]
    )
    named = transform.CommonSubexprElim()
    module = transform.NarrowDataType(32)(_mapped_bodies(flat(bound), with_opaque_names))
    module = steps.LoopPartition()(_mapped_bodies(module, with_names_again))
    for rewrite in (with_wide_numbers, with_short_last_vectors, with_joined_loops):
        module = _mapped_bodies(module, rewrite)
    module = unrolled(_mapped_bodies(module, with_tile_products))
    module = simplified(_mapped_bodies(module, without_settled_choices))
    if any(map(has_periodic_loads, module.functions.values())):
        return named(split_at_periods(called(module)))
    return called(named(module))


def _mapped_bodies(module: tvm.IRModule, rewrite: Callable[[tvm.tirx.Stmt], tvm.tirx.Stmt]) -> tvm.IRModule:
    functions = {
        variable: function.with_body(rewrite(function.body))
        for variable, function in module.functions.items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)


def _halves(body: tvm.tirx.Stmt, own: bool, bfloat16: bool) -> tvm.tirx.Stmt:
    body = without_half_conversions(body) if own else body
    return with_bfloat16(body) if bfloat16 else body


def _fixed_vectors(target: tvm.target.Target) -> tvm.target.Target:
    """The target to lower for: the same without vectors of unknown length.

    Where it sees them (RVV, SVE), TVM turns a vector loop into one over masked vectors of unknown length,
    which LLVM cannot keep in registers, and which TVM's own type checks refuse in unrolled sums. LLVM maps
    vectors of known length to the same registers. The code generator still gets the whole target.
    """
    options = dict(target.export())
    features = [str(name) for name in options.get("mattr", ())]
    if architecture_of(target) == "riscv64":
        options["mcpu"] = "generic-rv64"
        options["mattr"] = [name for name in features if not name.startswith(("+v", "+zv"))]
    elif "+sve" in features:
        options["mattr"] = [name for name in features if not name.startswith("+sve")]
    else:
        return target
    options.pop("host", None)
    return tvm.target.Target(options)


def _allocate_on_stack(body: tvm.tirx.Stmt) -> tvm.tirx.Stmt:
    """Mark small local buffers for the stack, where LLVM turns the sums of a register tile into registers.

    TVM takes 1 KB and more from the heap, which is as much as sixteen vectors of AVX-512. Whether LLVM still
    keeps the sums in registers then depends on what it can prove about pointers: next to a prefetch, in a
    function that runs in parallel, it cannot, and stores every sum at every step.
    """

    def visit(allocation: tvm.tirx.AllocBuffer) -> tvm.tirx.AllocBuffer:
        buffer = allocation.buffer
        if buffer.scope() != "local" or not all(isinstance(d, tvm.tirx.IntImm) for d in buffer.shape):
            return allocation
        size = math.prod(int(d) for d in buffer.shape) * _element_bytes(str(buffer.dtype))
        if size > _LARGEST_ON_STACK:
            return allocation
        annotations = {**dict(allocation.annotations), **_ON_STACK}
        return tvm.tirx.AllocBuffer(buffer, annotations, allocation.span)

    return mapped(body, (tvm.tirx.AllocBuffer, visit))


def _natural_alignment(statement: tvm.tirx.Stmt) -> tvm.tirx.Stmt:
    """Lower the alignment that is promised for each argument to the size of one element."""
    if isinstance(statement, tvm.tirx.SeqStmt):
        return tvm.tirx.SeqStmt([_natural_alignment(part) for part in statement.seq])
    if not isinstance(statement, tvm.tirx.AttrStmt):
        return statement
    value = statement.value
    if statement.attr_key == "storage_alignment":
        value = tvm.tirx.IntImm("int32", _element_bytes(str(statement.node.dtype)))
    return tvm.tirx.AttrStmt(statement.node, statement.attr_key, value, _natural_alignment(statement.body))


def _element_bytes(dtype: str) -> int:
    bits: int = tvm_ffi.dtype(dtype).bits
    return max(1, bits // 8)


def compile_kernel(
    function: tvm.tirx.PrimFunc,
    name: str,
    target: tvm.target.Target,
    cache: KernelCache | None = None,
) -> KernelObject:
    """Compile a scheduled function, or take its object from the cache.

    Args:
        function: scheduled PrimFunc.
        name: what to call it in messages.
        target: what to compile for.
        cache: None compiles always.

    Raises:
        BuildError: it does not compile.
    """
    key = kernel_key(function, target)
    symbol = f"kernel_{key[:24]}"
    entry = cache.get(key) if cache is not None else None
    if entry is not None and (found := _unpacked(entry)) is not None:
        return KernelObject(key, symbol, *found, from_cache=True)
    try:
        content, workspace = _compiled(function, symbol, target)
    except BuildError as error:
        raise BuildError(f"kernel {name}: {error}") from error
    if cache is not None:
        cache.put(key, _packed(content, workspace))
    return KernelObject(key, symbol, content, workspace, from_cache=False)


def _packed(content: bytes, workspace: Workspace | None) -> bytes:
    """An entry of the cache: one line about the scratch memory, then the object."""
    header = {"workspace": None if workspace is None else asdict(workspace)}
    return json.dumps(header).encode() + b"\n" + content


def _unpacked(entry: bytes) -> tuple[bytes, Workspace | None] | None:
    """The object of an entry and its scratch memory; None for an entry of before this was stored."""
    line, _, content = entry.partition(b"\n")
    if not line.startswith(b"{"):
        return None
    fields = json.loads(line)["workspace"]
    return content, None if fields is None else Workspace(**fields)


def first_line(error: Exception) -> str:
    """The first line of an error's message that is not empty; TVM's run over pages."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
