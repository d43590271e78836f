"""Variants of a model that may need less energy than the fastest one, as bundles of their own.

What makes a difference in joules at nearly the same latency is how many cores are awake and how many bytes
come from far away. So beside the fastest programs there are those among the nearly as fast that move least,
and the model made for fewer threads. See docs/decisions/0005.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from host import bundle
from host.compare.entrants import Entrant
from host.compile import static_model
from host.compile.memory_cap import require_within
from host.compile.processor import gpu_profile, why_no_gpu
from host.compile.static_model import Compiled, Plan
from host.compile.stored_tasks.file import tasks_json
from host.compile.task_outcome import TaskOutcome
from host.compile.tuning.kernel_tuning import recall, records_of
from host.errors import BuildError, ImportFailed, LoweringError, one_line
from host.manifest import memory_part
from host.model import CallGraph, DeviceProfile, ImportedModel, TimingPolicy
from host.options import SINGLE_PRECISION
from host.records import profile_data
from host.records.choice import comparable_costs
from host.records.place import is_there

if TYPE_CHECKING:
    from host.compile.bundle_builder import BundleBuilder
    from host.options import CompileOptions, DeployOptions
    from host.records import Record
    from host.schedules import DesignSpace
    from host.tuning.result import TuneResult
    from targets import HardwareModel

FASTEST, LEAST_TRAFFIC, UNTUNED, GPU = "fastest programs", "least traffic", "untuned", "gpu"
ALONE, SHARED = "programs of one thread", "programs of all threads"
# A program within so much of its task's fastest may be taken for needing less energy.
_NEARLY = 1.05
# Less than this is no reason to take a slower program.
_WORTH = 0.98
# Picojoules of a byte out of a memory by its size: a cache of up to 32 KiB, of up to 1 MiB, a larger one,
# and DRAM (M. Horowitz, "Computing's energy problem", ISSCC 2014: 20, 100 and about 2000 pJ for 8 bytes; a
# larger cache lies between). Only their proportions matter here.
_PICOJOULES_A_BYTE = ((32 << 10, 2.5), (1 << 20, 12.5), (1 << 62, 40.0))
_DRAM_PICOJOULES_A_BYTE = 250.0
_MAX_VARIANTS = 4
# Threads may make a run slower where it takes no more than so many seconds, and they are estimated to make it
# no more than so many times as fast: estimates of short kernels are not better. Where kernels by themselves
# promise more, one thread may be the slower one.
_SHORT_S, _DOUBTFUL = 2e-3, 1.4


@dataclass(frozen=True, eq=False)
class Variant(Entrant):
    """One form of the compiled model, or its own runtime, to measure beside the others.

    Attributes:
        tasks: who made its kernels; empty for other engines.
        calls: of its kernels in one run.
        tuning: what was measured for its kernels; None where nothing was.
        made: the compiled model of a plan of its own; None where it is the one that all share.
    """

    tasks: tuple[TaskOutcome, ...] = ()
    calls: CallGraph = field(default_factory=CallGraph)
    tuning: TuneResult | None = None
    made: Compiled | None = None


def variants_of(builder: BundleBuilder, made: Compiled, wider: bool) -> tuple[Variant, ...]:
    """The compiled model, and what is to be measured beside it.

    Args:
        builder: that made it.
        made: the compiled model, its bundle written.
        wider: whether variants are wanted that may need less energy.

    Raises:
        BuildError: a kernel does not compile.
        DeviceFull: no space left.
    """
    compiler = builder.compiler
    threads = compiler.profile.threads
    first = Variant(
        FASTEST, "tvm", builder.directory("tvm"), threads, tasks=made.tasks, calls=made.lowered.calls
    )
    found = [first]
    if wider and made.plan is not None:
        plan = least_traffic_plan(made.plan, compiler.profile, records_of(compiler.options))
        if plan is not None:
            found += _within_memory(builder, lambda: _built(builder, made, first, LEAST_TRAFFIC, plan))
    # On a GPU the threads are those of the host, which waits.
    if wider and compiler.options.threads == 0 and compiler.profile.hardware.gpu is None:
        for fewer in fewer_threads(threads)[: _MAX_VARIANTS - len(found)]:
            found += _within_memory(builder, functools.partial(_narrower, builder, made, first, fewer))
    given = (made, compiler.profile, compiler.options.seed)
    in_doubt = {ALONE: plan_of_one_thread(*given), SHARED: plan_of_all_threads(*given)}
    for name, other in in_doubt.items():
        if other is not None:
            built = _within_memory(builder, functools.partial(_built, builder, made, first, name, other))
            found += [replace(one, instead_of=FASTEST) for one in built]
    if made.untuned is not None:
        found.append(replace(_built(builder, made, first, UNTUNED, made.untuned), deployable=False))
    return tuple(found)


def _within_memory(builder: BundleBuilder, build: Callable[[], Variant]) -> list[Variant]:
    """A variant, or none where it takes more memory than is allowed."""
    if not builder.compiler.options.memory_cap_bytes:
        return [build()]
    try:
        return [build()]
    except BuildError as error:
        builder.compiler.clock.progress.note(f"a variant is left out: {one_line(error)}")
        return []


def tunes_gpu(options: DeployOptions, profile: DeviceProfile, timing: TimingPolicy) -> bool:
    """Whether trials and a budget are for the board's GPU, which `--processor auto` finds.

    Args:
        options: of the deployment or tuning.
        profile: of the device's CPU.
        timing: of the device.
    """
    asked = options.tuned and options.processor == "auto" and not options.beside
    return asked and profile.board.gpu is not None and not _why_without_gpu(options, profile, timing)


def _why_without_gpu(options: CompileOptions, profile: DeviceProfile, timing: TimingPolicy) -> str:
    """Why a board's GPU is left out; "" where its bundle is compiled beside the CPU's."""
    if options.dtype == "bf16":
        return "--dtype bf16 is for the CPU"
    if options.ranged:
        return "a range of lengths is served by a GPU with --processor gpu alone"
    if not timing.decides:
        return f"{timing.source}'s times do not say which processor is faster; say --processor gpu"
    return why_no_gpu(profile)


def compiled_for_gpu(builder: BundleBuilder, model: ImportedModel, timing: TimingPolicy) -> Variant | None:
    """The model's bundle for the board's GPU, in a folder beside the CPU's; None where there cannot be one.

    Args:
        builder: of the bundle for the CPU; its options say whether the GPU's kernels are tuned.
        model: with its module.
        timing: of the device.
    """
    compiler = builder.compiler
    note = compiler.clock.progress.note
    if compiler.profile.board.gpu is None:
        return None
    reason = _why_without_gpu(compiler.options, compiler.profile, timing)
    if reason:
        note(f"the GPU is left out: {reason}")
        return None
    folder = compiler.folder / GPU
    folder.mkdir()
    own = builder.with_profile(gpu_profile(compiler.profile), folder)
    try:
        made = own.compile(model)
    except (ImportFailed, LoweringError, BuildError) as error:
        note(f"the GPU is left out: {one_line(error)}")
        return None
    path, threads = own.directory("tvm"), compiler.profile.threads
    return Variant(GPU, "tvm", path, threads, tasks=made.tasks, calls=made.lowered.calls, tuning=made.tuning)


def compiled_single(builder: BundleBuilder, model: ImportedModel) -> Entrant:
    """A model's bundle in single precision, in a folder beside the one in halves; only to measure beside it.

    Args:
        builder: of the bundle in halves.
        model: with its module.

    Raises:
        BuildError: a kernel does not compile.
    """
    compiler = builder.compiler
    folder = compiler.folder / SINGLE_PRECISION
    folder.mkdir()
    options = replace(compiler.options, dtype="fp32", trials=0, budget_s=0.0)
    own = replace(builder, compiler=replace(compiler, options=options, folder=folder, model_plan=None))
    own.compile(model)
    return Entrant(SINGLE_PRECISION, "tvm", own.directory("tvm"), compiler.profile.threads, deployable=False)


def engine_variants(engine: str, model: Path, threads: int, wider: bool) -> tuple[Variant, ...]:
    """A model file in its own runtime, on all threads and on fewer."""
    counts = (threads, *(fewer_threads(threads) if wider else ()))
    return tuple(Variant(engine, engine, model, count) for count in counts)


def fewer_threads(threads: int) -> tuple[int, ...]:
    """Smaller numbers of threads to compare: half of `threads`, and 1."""
    return tuple(dict.fromkeys(count for count in (threads // 2, 1) if 1 <= count < threads))


def _narrower(builder: BundleBuilder, made: Compiled, first: Variant, threads: int) -> Variant:
    """The model on fewer threads: with programs made for them, whose tiles are cut for as many panels.

    Where more is known by measuring of the programs for all threads than of those, the library is shared:
    what was tuned for more threads is the better guess then.
    """
    compiler = builder.compiler
    profile = replace(compiler.profile, threads=threads)
    narrow = builder.with_profile(profile)
    if made.plan is not None:
        plan = static_model.propose(made.lowered, profile, compiler.options.seed, compiler.clock)
        plan = recall(plan, profile, records_of(compiler.options), compiler.options.goal)
        tuned = made.plan.chosen if made.tuning is not None else made.plan.from_database
        if len(plan.from_database) >= len(tuned):
            return _built(narrow, made, first, FASTEST, plan)
    path = builder.directory(f"tvm-{threads}")
    bundle.write_variant(path, first.path, threads)
    return replace(first, path=path, threads=threads)


def _built(builder: BundleBuilder, made: Compiled, first: Variant, name: str, plan: Plan) -> Variant:
    compiler = builder.compiler
    threads = compiler.profile.threads
    folder = builder.directory(f"tvm-{name.replace(' ', '-')}-{threads}")
    library = folder.with_name(f"{folder.name}.so")
    built = static_model.build(made.lowered, compiler.profile, plan, library, compiler.clock)
    # The parameters of the model were dropped when they were written; they are those of the first variant.
    memory = replace(built.memory, weights_bytes=made.memory.weights_bytes)
    require_within(memory, compiler.options.memory_cap_bytes)
    lowered, seed = made.lowered, compiler.options.seed
    tasks = tasks_json(lowered.tasks, plan, compiler.profile, seed, lowered.sites)
    bundle.write_variant(folder, first.path, threads, library, tasks, memory_part(memory))
    return Variant(name, "tvm", folder, threads, tasks=built.tasks, calls=made.lowered.calls)


def plan_of_one_thread(made: Compiled, profile: DeviceProfile, seed: int) -> Plan | None:
    """The plan in which the calling thread computes all, where it is in doubt that others make a run faster.

    Args:
        made: the compiled model.
        profile: of the device.
        seed: of Gensor's walks.

    Returns:
        None for runs that are long or that threads are estimated to make much faster, and for language
        models, whose functions add up rows in one order.
    """
    from host.plans.shared_kernels import is_shared, program_of_one_thread, seconds_both_ways

    plan = made.plan
    if plan is None or made.lowered.entries or not any(map(is_shared, plan.chosen.values())):
        return None
    tasks = [task for task in made.lowered.tasks if task.workload_hash in plan.chosen]
    known = [
        (task.weight, seconds_both_ways(plan.spaces[task.workload_hash], plan.chosen[task.workload_hash]))
        for task in tasks
    ]
    shared_s = sum(weight * one.shared_s for weight, one in known)
    if shared_s > _SHORT_S or sum(weight * one.alone_s for weight, one in known) > _DOUBTFUL * shared_s:
        return None
    alone = {
        key: program_of_one_thread(plan.spaces[key], profile, seed)
        for key, candidate in plan.chosen.items()
        if is_shared(candidate)
    }
    made_now = {key: candidate for key, candidate in alone.items() if candidate is not None}
    if len(made_now) < len(alone):
        return None
    recalled = plan.from_database - made_now.keys()
    return replace(plan, chosen={**plan.chosen, **made_now}, from_database=recalled)


def plan_of_all_threads(made: Compiled, profile: DeviceProfile, seed: int) -> Plan | None:
    """The plan in which threads share kernels, where neighbours alone are the reason why one computes all.

    What a loop costs behind other work, and what cores hand each other, was measured on few processors.

    Args:
        made: the compiled model.
        profile: of the device.
        seed: of Gensor's walks.

    Returns:
        None where kernels are shared, where they would not gain much even by themselves, and for language
        models. Programs of the records stay.
    """
    from host.gensor import Gensor
    from host.plans.shared_kernels import is_shared

    plan = made.plan
    if plan is None or made.lowered.entries or profile.threads == 1 or profile.hardware.gpu is not None:
        return None
    if any(map(is_shared, plan.chosen.values())):
        return None
    chosen, alone_s, shared_s = dict(plan.chosen), 0.0, 0.0
    for task in made.lowered.tasks:
        key = task.workload_hash
        if key not in chosen:
            continue
        alone_s += task.weight * chosen[key].estimate_s
        if key not in plan.from_database:
            chosen[key] = next(iter(Gensor().propose(plan.spaces[key], profile, (), 1, seed)), chosen[key])
        shared_s += task.weight * chosen[key].estimate_s
    return replace(plan, chosen=chosen) if alone_s > _DOUBTFUL * shared_s else None


def least_traffic_plan(plan: Plan, profile: DeviceProfile, records: str | Path) -> Plan | None:
    """The plan with, for each task, the program that moves least among those nearly as fast as the fastest.

    Returns:
        None where that changes nothing: no records, or no other program is worth it.
    """
    if not is_there(records):
        return None
    from host.records import RecordStore

    data = profile_data(profile)
    chosen = dict(plan.chosen)
    with RecordStore(records) as store:
        for key, space in plan.spaces.items():
            if key in chosen:
                record = least_traffic(store.history(key, data), space, dict(chosen[key].decisions))
                chosen[key] = record.candidate if record is not None else chosen[key]
    return replace(plan, chosen=chosen) if chosen != plan.chosen else None


def least_traffic(
    records: Sequence[Record], space: DesignSpace, present: Mapping[str, object]
) -> Record | None:
    """The measured program that moves least among those within 5% of the fastest.

    None where none moves at least 2% less than the present one, or the rule estimates no traffic.
    """
    rule = space.rule
    programs = comparable_costs(
        record
        for record in records
        if (record.candidate.rule, record.candidate.space_version) == (rule.name, rule.version)
        and record.measurement.trusted
    )
    now = movement_joules(space, present)
    if not programs or now is None:
        return None
    limit = _NEARLY * min(one.seconds for one in programs)
    best: tuple[float, Record] | None = None
    for one in programs:
        joules = movement_joules(space, dict(one.record.candidate.decisions))
        if one.seconds <= limit and joules is not None and (best is None or joules < best[0]):
            best = (joules, one.record)
    return best[1] if best is not None and best[0] < _WORTH * now else None


def movement_joules(space: DesignSpace, decisions: Mapping[str, object]) -> float | None:
    """Modelled joules of moving a program's data; None where its rule estimates no traffic."""
    values = {name: int(value) for name, value in decisions.items() if isinstance(value, int)}
    parts = space.estimate_parts_s(values)
    if not parts:
        return None
    total = 0.0
    for level in space.hardware.levels[1:]:
        moved = parts.get(level.name, 0.0) * level.bandwidth_bytes_per_s
        total += moved * picojoules_a_byte(space.hardware, level.name) * 1e-12
    return total


def picojoules_a_byte(hardware: HardwareModel, level: str) -> float:
    """Of reading from a memory level, by its size; the last level is DRAM."""
    if level == hardware.levels[-1].name:
        return _DRAM_PICOJOULES_A_BYTE
    size = hardware.level(level).size_bytes or 0
    return next(cost for limit, cost in _PICOJOULES_A_BYTE if size <= limit)
