"""The reference programs of a board: few, always the same, and measured again and again over months.

One multiplies and adds in registers, one follows a chain of integer additions (the clock), one reads memory
that no cache holds: what firmware, kernel, governor and cooling change shows in one of them. Their figures
compare a board with itself; they are no rates.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from host.calibration.bench import PLAN, Bench, fast_end
from host.calibration.procedure import (
    TIME_LIMIT_S,
    Progress,
    buffer_bytes,
    chains_of,
    stream_work,
    working_sets,
)
from host.calibration.programs import (
    LINE_ELEMENTS,
    STREAMS,
    chase_fill,
    fused_chains,
    integer_chain,
    stream,
)
from host.calibration.store import board_of
from host.errors import UserError
from host.model.reference_times import ReferenceTimes, system_parts
from targets import Board, HardwareModel, MachineDescription

if TYPE_CHECKING:
    import tvm

    from host.transport import Device

# Figures of each program, a round each: as many as make Student's quantile nearly that of the normal curve.
ROUNDS = 12
# Versions of what runs programs, of all that a board has; others (engines to compare with) change no kernel.
_RUNTIME = ("python", "glibc", "tvm", "tvm_ffi", "l4t", "cuda")


def measure_references(device: Device, progress: Progress | None = None) -> ReferenceTimes:
    """Measure the reference programs in rounds, each program once a round, in one new session.

    Args:
        device: connected; nothing else should run on it.
        progress: receives the number of rounds that are done, and of all.

    Raises:
        UserError: no board file describes the device, or it is emulated.
        MeasureError: it throttles, or gives no times.
        DeviceError: it went away.
    """
    if not device.timing.decides:
        raise UserError(f"{device.name} is emulated: its times say nothing, and cannot drift")
    description = device.describe()
    board = board_of(description, device.name)
    elements = buffer_bytes(board.hardware, description) // 4
    functions = _functions(board.hardware, elements)
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as folder:
        library = Path(folder) / "references.so"
        _build(functions, library, board)
        with device.open_session("tvm", 1, TIME_LIMIT_S) as session, Bench(session, library) as bench:
            arguments = _arguments(bench, board.hardware, elements)
            seconds: dict[str, list[float]] = {name: [] for name in arguments}
            for number in range(ROUNDS):
                for name, times in seconds.items():
                    times.append(fast_end(bench.time(name, *arguments[name])))
                if progress is not None:
                    progress(number + 1, ROUNDS)
    return ReferenceTimes(
        programs=_digest(functions, board, elements),
        system=system_of(description, device.state()),
        seconds={name: tuple(times) for name, times in seconds.items()},
    )


def system_of(description: MachineDescription, state: Mapping[str, Any]) -> dict[str, str]:
    """What decides how fast programs run on a machine, as far as it says: texts by name."""
    governors = {str(one) for one in state.get("governors", {}).values()}
    limits = state.get("limits_hz", {}).values()
    clocks = sorted({f"{max(pair) / 1e6:.0f} MHz" for pair in limits if pair})
    runtime = {name: description.software[name] for name in _RUNTIME if name in description.software}
    return system_parts(
        {
            **description.system,
            **runtime,
            "governor": ", ".join(sorted(governors)),
            "highest clock": ", ".join(clocks),
        }
    )


def _functions(hardware: HardwareModel, elements: int) -> dict[str, tvm.tirx.PrimFunc]:
    chains = max(chains_of(hardware))
    return {
        f"fused_{chains}": fused_chains(chains, hardware.lanes),
        "integer_chain": integer_chain(),
        "stream": stream(elements, hardware.lanes),
        "chase_fill": chase_fill(elements),
    }


def _arguments(bench: Bench, hardware: HardwareModel, elements: int) -> dict[str, tuple[Any, ...]]:
    """What each program is called with."""
    chains, lanes = max(chains_of(hardware)), hardware.lanes
    steps, passes = _stream_work(hardware, elements)
    # x / 2 + 1 stays at 2: no overflow, no denormal numbers.
    factor, summand = bench.constant(lanes, "float32", 0.5), bench.constant(lanes, "float32", 1.0)
    vectors = bench.constant(chains * lanes, "float32", 2.0), bench.constant(chains * lanes, "float32", 0.0)
    buffer = bench.buffer(elements)
    # Written, so that the system gives it pages of its own.
    bench.call("chase_fill", buffer, elements // LINE_ELEMENTS)
    return {
        f"fused_{chains}": (vectors[0], factor, summand, vectors[1]),
        "integer_chain": (bench.constant(2, "int64", 12345), bench.constant(1, "int64", 0)),
        "stream": (buffer, bench.constant(STREAMS * lanes, "int32", 0), steps, passes),
    }


def _stream_work(hardware: HardwareModel, elements: int) -> tuple[int, int]:
    return stream_work(hardware, max(working_sets(hardware, 4 * elements).values()))


def _build(functions: Mapping[str, tvm.tirx.PrimFunc], library: Path, board: Board) -> None:
    from host.build import KernelCache, build_kernel_library, target_for

    build_kernel_library(functions, library, target_for(board), KernelCache())


def _digest(functions: Mapping[str, tvm.tirx.PrimFunc], board: Board, elements: int) -> str:
    """Of all that decides what is measured: the programs, the compiler, their work, and the plan."""
    import tvm

    content = {
        "programs": {name: function.script() for name, function in functions.items()},
        "compiler": tvm.__version__,
        "target": board.tvm_target,
        "work": _stream_work(board.hardware, elements),
        "plan": PLAN,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
