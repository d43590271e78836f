"""Measures a processor on the device itself: rates, memory levels and the cost of a parallel loop."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from host.calibration.bench import Bench, fast_end
from host.calibration.model import Calibration, CurvePoint, LevelFigures, machine_hash
from host.calibration.programs import (
    FUSED_STEPS,
    INTEGER_CYCLES,
    INTEGER_STEPS,
    LINE_ELEMENTS,
    STREAMS,
    programs,
)
from host.calibration.store import board_of
from host.errors import MeasureError
from targets import Board, HardwareModel, MachineDescription

if TYPE_CHECKING:
    from host.transport import Device

# Apart in time, so that other work on the device is not in all of them.
_ROUNDS = 3
_STREAM_S = 1e-3
_CHASE_STEPS = 1 << 15
_LINE_BYTES = 64
_SMALLEST_BUFFER = 32 << 20
_LARGEST_BUFFER = 256 << 20
# Inner levels have a buffer of their own for latencies: in large mappings of a virtual machine single
# accesses were seen to take 0.5 us each time, which is nothing among many lines but a lot among a few.
_SMALL_BUFFER = 1 << 20
TIME_LIMIT_S = 60.0

Progress = Callable[[int, int], None]


@dataclass
class _Samples:
    """Seconds of one call by what was measured, a list a round."""

    rounds: dict[str, list[list[float]]] = field(default_factory=dict)

    def add(self, name: str, times_s: Sequence[float]) -> None:
        self.rounds.setdefault(name, []).append(list(times_s))

    def best(self, name: str) -> float:
        """The fast end of all samples."""
        return fast_end([time for times in self.rounds[name] for time in times])

    def spread(self, name: str) -> float:
        """How much slower the fast end of a middling round was than that of the fastest."""
        ends = sorted(fast_end(times) for times in self.rounds[name])
        return ends[len(ends) // 2] / ends[0]


def calibrate(device: Device, progress: Progress | None = None) -> Calibration:
    """Measure a device in well under a minute, and see that the figures make sense.

    Args:
        device: connected; nothing else should run on it.
        progress: receives the number of rounds that are done.

    Raises:
        UserError: no board file describes the device.
        MeasureError: the figures make no sense; they are named, and nothing should be stored.
        DeviceError: the device went away.
    """
    found = measure(device, progress)
    complaints = found.complaints(board_of(device.describe(), device.name).hardware)
    if complaints:
        raise MeasureError(
            f"calibration of {device.name} is implausible and is not stored: {'; '.join(complaints)};"
            " end other work on the device and run it again"
        )
    return found


def measure(device: Device, progress: Progress | None = None) -> Calibration:
    """The figures of a device, whatever they are; see `calibrate`."""
    begin = time.monotonic()
    description = device.describe()
    board = board_of(description, device.name)
    load = float(device.state().get("load_1min", 0.0))
    chains = chains_of(board.hardware)
    elements = buffer_bytes(board.hardware, description) // 4
    samples = _Samples()
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as folder:
        library = Path(folder) / "calibration.so"
        _build(board, library, elements, chains, description.cores)
        for number in range(_ROUNDS):
            _round(device, library, board.hardware, description.cores, chains, elements, samples)
            if progress is not None:
                progress(number + 1, _ROUNDS)
    found = _figures(device.name, description, board, chains, elements, samples)
    return replace(found, seconds=round(time.monotonic() - begin, 1), load=load)


def _round(
    device: Device,
    library: Path,
    hardware: HardwareModel,
    cores: int,
    chains: tuple[int, ...],
    elements: int,
    samples: _Samples,
) -> None:
    """Everything once, in new processes: memory of their own, at other addresses."""
    with device.open_session("tvm", 1, TIME_LIMIT_S) as session, Bench(session, library) as bench:
        _rates(bench, hardware, chains, samples)
        _memory(bench, hardware, elements, samples)
    if cores > 1:
        with device.open_session("tvm", cores, TIME_LIMIT_S) as session, Bench(session, library) as bench:
            samples.add("launch", bench.time("launch", bench.buffer(cores * LINE_ELEMENTS)))


def chains_of(hardware: HardwareModel) -> tuple[int, ...]:
    """Numbers of chains to try: one, and as many as the registers hold beside two operands."""
    return (1, *(count for count in (4, 8, 12, 16, 24) if count + 2 <= hardware.vector_registers))


def buffer_bytes(hardware: HardwareModel, description: MachineDescription) -> int:
    """A buffer that no cache holds, and that leaves the device most of its memory."""
    cached = max((level.size_bytes for level in hardware.levels), default=0)
    wanted = min(max(_SMALLEST_BUFFER, 4 * cached), _LARGEST_BUFFER)
    most = description.memory_bytes // 8 or wanted
    return int(2 ** math.floor(math.log2(max(1 << 20, min(wanted, most)))))


def working_sets(hardware: HardwareModel, buffer_bytes: int) -> dict[str, int]:
    """The bytes to read for each level: most of the first level, between the sizes of two for the others."""
    sets, inner = {}, 0
    for level in hardware.levels:
        if not level.size_bytes:
            sets[level.name] = buffer_bytes
        elif not inner:
            sets[level.name] = level.size_bytes * 3 // 4
        else:
            sets[level.name] = min(int(math.sqrt(inner * level.size_bytes)), buffer_bytes)
        inner = level.size_bytes
    return sets


def curve_sizes(hardware: HardwareModel, buffer_bytes: int) -> list[int]:
    """Sizes of the picture: doublings from half the first level up to the buffer."""
    size = hardware.levels[0].size_bytes // 2
    sizes = []
    while size < buffer_bytes:
        sizes.append(size)
        size *= 2
    return [*sizes, buffer_bytes]


def _build(board: Board, library: Path, elements: int, chains: tuple[int, ...], threads: int) -> None:
    from host.build import KernelCache, build_kernel_library, target_for

    functions = programs(elements, board.hardware.lanes, chains, threads)
    build_kernel_library(functions, library, target_for(board), KernelCache())


def _rates(bench: Bench, hardware: HardwareModel, chains: tuple[int, ...], samples: _Samples) -> None:
    operands, result = bench.constant(2, "int64", 12345), bench.constant(1, "int64", 0)
    samples.add("integer_chain", bench.time("integer_chain", operands, result))
    # x / 2 + 1 stays at 2: no overflow, no denormal numbers.
    factor = bench.constant(hardware.lanes, "float32", 0.5)
    summand = bench.constant(hardware.lanes, "float32", 1.0)
    for count in chains:
        start = bench.constant(count * hardware.lanes, "float32", 2.0)
        end = bench.constant(count * hardware.lanes, "float32", 0.0)
        samples.add(f"fused_{count}", bench.time(f"fused_{count}", start, factor, summand, end))


def _memory(bench: Bench, hardware: HardwareModel, elements: int, samples: _Samples) -> None:
    buffer = bench.buffer(elements)
    result = bench.constant(STREAMS * hardware.lanes, "int32", 0)
    # Every page is written once, so that none is the one page of zeros that a system maps unwritten.
    bench.call("chase_fill", buffer, elements // LINE_ELEMENTS)
    sets = working_sets(hardware, 4 * elements)
    for size in sorted({*sets.values(), *curve_sizes(hardware, 4 * elements)}):
        steps, passes = stream_work(hardware, size)
        times = bench.time("stream", buffer, result, steps, passes)
        samples.add(f"stream_{size}", [value / (_stream_bytes(hardware, steps) * passes) for value in times])
    small = bench.buffer(_SMALL_BUFFER // 4)
    for size in sorted(set(sets.values())):
        chain = small if size <= _SMALL_BUFFER else buffer
        lines = 2 ** int(math.log2(size // _LINE_BYTES))
        bench.call("chase_fill", chain, lines)
        place = bench.constant(1, "int32", 0)
        samples.add(f"chase_{size}", bench.time("chase", chain, place, _CHASE_STEPS))


def stream_work(hardware: HardwareModel, size: int) -> tuple[int, int]:
    """Steps and passes of reading so many bytes over and over: about a millisecond in the first level."""
    steps = max(1, size // (4 * STREAMS * hardware.lanes))
    rate = hardware.levels[0].bandwidth_bytes_per_s
    return steps, max(1, int(_STREAM_S * rate / _stream_bytes(hardware, steps)))


def _stream_bytes(hardware: HardwareModel, steps: int) -> int:
    return 4 * STREAMS * hardware.lanes * steps


def _figures(
    name: str,
    description: MachineDescription,
    board: Board,
    chains: tuple[int, ...],
    elements: int,
    samples: _Samples,
) -> Calibration:
    hardware = board.hardware
    frequency = INTEGER_CYCLES * INTEGER_STEPS / samples.best("integer_chain")
    rates = {c: 2.0 * c * hardware.lanes * FUSED_STEPS / samples.best(f"fused_{c}") for c in chains}
    fastest = max(rates, key=lambda count: rates[count])
    levels = tuple(
        LevelFigures(
            name=level,
            working_set_bytes=size,
            bandwidth_bytes_per_s=1.0 / samples.best(f"stream_{size}"),
            latency_s=samples.best(f"chase_{size}") / _CHASE_STEPS,
        )
        for level, size in working_sets(hardware, 4 * elements).items()
    )
    sizes = curve_sizes(hardware, 4 * elements)
    return Calibration(
        device=name,
        board=board.name,
        machine=machine_hash(description, board),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=dict(description.software),
        seconds=0.0,
        vector_bits=hardware.vector_bits,
        frequency_hz=frequency,
        peak_flops=rates[fastest],
        fma_latency_cycles=round(2 * samples.best("fused_1") / FUSED_STEPS * frequency) / 2,
        levels=levels,
        parallel_launch_s=samples.best("launch") if "launch" in samples.rounds else None,
        threads=description.cores,
        load=0.0,
        spread=samples.spread(f"fused_{fastest}"),
        curve=tuple(CurvePoint(size, 1.0 / samples.best(f"stream_{size}")) for size in sizes),
    )
