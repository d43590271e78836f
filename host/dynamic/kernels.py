"""The kernel of a task over a range of lengths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from math import isqrt
from typing import Any

from tvm import tirx

from host.build.cuda.barriers import with_barriers
from host.build.cuda.default_schedule import default_schedule_gpu
from host.build.default_schedule import default_schedule
from host.dynamic.dispatch import dispatched, runs_of
from host.dynamic.own_length import has_length, rounds, with_length
from host.dynamic.parallel import CHUNKS, parallelised
from host.dynamic.range_programs import RangeProgram, fastest_at_each, programs_over, task_at
from host.dynamic.request import Dimension
from host.dynamic.template import Template, unify
from host.dynamic.tiles import Clamped, clamped, to_loops
from host.errors import EdgeError, LoweringError, ScheduleError, one_line
from host.gensor import Gensor
from host.model import Candidate, DeviceProfile
from host.schedules import DesignSpace, scheduled_function, space_for
from host.schedules.api import PARALLEL, WordClass
from host.tensor_ir.processor import is_for_cpu

# Multiples of a program's tiles, and lengths that no tile divides, from which programs over the length are
# made: primes, so that no number in a program is one of them by accident. The lengths leave different rests
# by 8 and by 16: with equal rests, what is rounded up to vectors would look like a line.
_MULTIPLES = (7, 11, 13)
_RAGGED = (37, 59, 97, 151)
# Programs that are tried until one is legal, and has one structure, at all of these.
_CANDIDATES = 16


@dataclass(frozen=True, eq=False)
class Kernel:
    """A task's kernel over the length.

    Attributes:
        name: of the function.
        function: takes any length of the range.
        source: "gensor" or "default".
        rule: of the design space; "" without one.
        decisions: of the program that serves the most lengths.
        programs: how many there are to choose from.
        reason: why it is a default schedule.
    """

    name: str
    function: tirx.PrimFunc
    source: str
    rule: str = ""
    decisions: Mapping[str, Any] | None = None
    programs: int = 1
    reason: str = ""


def kernel_over(
    name: str, template: Template, dimension: Dimension, profile: DeviceProfile, seed: int
) -> Kernel:
    """Construct the kernel of one task.

    Register-blocked tasks get a few programs of overlapping tiles; the others one program whose last vector
    may be short. A task for which neither can be made gets a default schedule.
    """
    made = _made(name, template, dimension, profile, seed)
    return replace(made, function=with_length(made.function).with_attr("global_symbol", name))


def _made(name: str, template: Template, dimension: Dimension, profile: DeviceProfile, seed: int) -> Kernel:
    try:
        if is_for_cpu(template.base):
            raise ScheduleError("runs on the CPU beside the GPU")
        if not template.slots:
            return _fixed(name, template, profile, seed)
        try:
            return _tiled(name, template, dimension, profile, seed)
        except ScheduleError as error:
            return _ragged(name, template, dimension, profile, seed, str(error))
    except (ScheduleError, LoweringError) as error:
        return default_over(name, template, one_line(error), profile.hardware.gpu is not None)


def _fixed(name: str, template: Template, profile: DeviceProfile, seed: int) -> Kernel:
    """A task that the length does not touch."""
    space = space_for(task_at(name, template, 1), profile.hardware, profile.threads)
    candidate = _proposed(space, profile, seed)
    return Kernel(
        name,
        scheduled_function(space.apply(candidate)),
        candidate.proposer,
        candidate.rule,
        dict(candidate.decisions),
    )


def _proposed(space: DesignSpace, profile: DeviceProfile, seed: int) -> Candidate:
    found = Gensor().propose(space, profile, (), 1, seed)
    if not found:
        raise ScheduleError(f"{space.task.name}: no program in the design space")
    return found[0]


def _tiled(name: str, template: Template, dimension: Dimension, profile: DeviceProfile, seed: int) -> Kernel:
    if rounds(template) and not has_length(template):
        # In whole tiles the elements of a rounded axis look as if there were as many for each of the length.
        raise ScheduleError(f"{name}: its tensors have no axis of the length, only rounded parts of it")
    length = tirx.Var("length", "int32")
    programs: list[RangeProgram] = []
    functions: list[tirx.PrimFunc] = []
    refused = ""
    for program in programs_over(name, template, profile, dimension.low, dimension.high, seed):
        try:
            made = clamped_program(name, template, program, profile, length)
        except (ScheduleError, LoweringError) as error:
            refused = str(error)
            continue
        programs.append(replace(program, shortest_length=made.shortest_length))
        functions.append(made.function)
    if not programs:
        raise ScheduleError(refused)
    choices = fastest_at_each(programs, dimension.low, dimension.high)
    if -1 in choices:
        # Shorter than any tile: too little work to matter, written as it was lowered.
        functions.append(to_loops(template.over(length)))
        choices = [len(programs) if choice < 0 else choice for choice in choices]
    used = sorted(set(choices))
    runs = runs_of([used.index(choice) for choice in choices], dimension.low)
    function = dispatched([functions[i] for i in used], runs, length)
    most = max((i for i in used if i < len(programs)), key=choices.count, default=0)
    chosen = programs[most].candidate
    return Kernel(name, function, chosen.proposer, chosen.rule, dict(chosen.decisions), len(used))


def clamped_program(
    name: str, template: Template, program: RangeProgram, profile: DeviceProfile, length: tirx.Var
) -> Clamped:
    """A program for any length that is not shorter than its tile.

    Raises:
        LoweringError: its programs at several lengths differ in more than numbers.
        ScheduleError: its tiles could not overlap.
    """
    programs = {}
    for multiple in _MULTIPLES:
        space = program.space_at(multiple, name, template)
        values = {decision.name: decision.choices[0] for decision in space.decisions}
        programs[multiple] = to_loops(scheduled_function(space.apply(space.candidate(values, "gensor"))))
    made = clamped(programs, program.tile.period, length, name)
    threads = int(dict(program.candidate.decisions).get(PARALLEL.name, profile.threads))  # type: ignore[arg-type]
    return replace(made, function=parallelised(made.function, length, made.shortest_length, threads))


def _ragged_lengths(dimension: Dimension, profile: DeviceProfile) -> tuple[int, ...]:
    """Lengths that are all long enough, or all too short, to be shared among the threads alone.

    A loop of fewer iterations than the threads want is fused with the next one, which is another structure.
    On a GPU the lengths are of the size of those that are served, as tiles are chosen for the longest.
    """
    enough = CHUNKS * profile.threads if profile.threads > 1 else 1
    if profile.hardware.gpu is not None:
        enough = dimension.high // len(_RAGGED)
    scale = max(1, -(-enough // _RAGGED[0]))
    return tuple(_prime_from(length * scale, length % 8) for length in _RAGGED)


def _prime_from(start: int, rest: int) -> int:
    """The first prime from `start` on that leaves a rest by 8."""
    number = start
    while number % 8 != rest or any(number % factor == 0 for factor in range(3, isqrt(number) + 1, 2)):
        number += 1
    return number


def _ragged(
    name: str, template: Template, dimension: Dimension, profile: DeviceProfile, seed: int, untiled: str
) -> Kernel:
    """One program, without tiles along the length, for lengths that no vector divides and all others."""
    lengths = _ragged_lengths(dimension, profile)
    # Registers of matrices are configured for the rows of the last tile, which an open length does not tell.
    hardware = replace(profile.hardware, matrix_tiles=None)
    spaces = {n: space_for(task_at(name, template, n), hardware, profile.threads) for n in lengths}
    middle = spaces[lengths[-1]]
    rule, open_space = middle.rule, middle
    if rule.length_tiling is not None:
        tiling = rule.length_tiling.between(spaces[lengths[0]].workload, middle.workload, profile.hardware)
        open_space = middle.fixed(tiling.untiled()) or middle
    refused = f"no program of rule {rule.name} is legal at every length"
    # What threads share may be other loops at other lengths: then one thread has the program alone.
    serial = open_space.fixed({PARALLEL.name: 1}) or open_space
    # The smallest tiles divide any length.
    tiles = (decision for decision in serial.decisions if decision.kind.words is WordClass.TILE)
    smallest = serial.fixed({decision.name: decision.choices[0] for decision in tiles}) or serial
    tried = (open_space, serial, smallest)
    proposed = (Gensor().propose(space, profile, (), _CANDIDATES, seed) for space in tried)
    for candidate in chain.from_iterable(proposed):
        values = {key: int(value) for key, value in candidate.decisions}  # type: ignore[arg-type]
        if not all(space.rule is rule and space.legal(values) for space in spaces.values()):
            continue
        try:
            programs = _programs(spaces, values)
            if rule.sized_tiles:
                # What blocks and threads hold has the sizes of the tiles; over an open length TVM finds none.
                programs = {n: to_loops(with_barriers(one)) for n, one in programs.items()}
            function = unify(programs, name).over(tirx.Var("length", "int32"))
        except LoweringError as error:
            refused = str(error)
            continue
        return Kernel(name, function, candidate.proposer, candidate.rule, values)
    raise ScheduleError(f"{untiled}; and {refused}")


def _programs(spaces: Mapping[int, DesignSpace], values: Mapping[str, int]) -> dict[int, tirx.PrimFunc]:
    """The program with these decisions at every length."""
    fixed = {n: space.decided(values) for n, space in spaces.items()}
    return {n: scheduled_function(space.apply(space.candidate(values, ""))) for n, space in fixed.items()}


def default_over(name: str, template: Template, reason: str, on_gpu: bool = False) -> Kernel:
    """A default schedule, or the function as it was lowered where that changes with the length.

    Args:
        name: of the task.
        template: of its function.
        reason: why it has no program of a rule.
        on_gpu: whether the programs are for a GPU.

    Raises:
        BuildError: the function has no default schedule on a GPU.
    """
    length = tirx.Var("length", "int32")
    if on_gpu:
        # A kernel for each stage, over as many blocks as the length takes.
        function = template.over(length)
        function = function if is_for_cpu(function) else default_schedule_gpu(function, name)
        return Kernel(name, function.with_attr("global_symbol", name), "default", reason=reason)
    try:
        programs = {n: default_schedule(template.at(n)) for n in _RAGGED}
        function = unify(programs, name).over(length)
    except EdgeError:
        function = template.over(length)
    return Kernel(name, function.with_attr("global_symbol", name), "default", reason=reason)
