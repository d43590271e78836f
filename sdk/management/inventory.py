"""Inventory: devices, targets, versions, engines, sensors, and the reasons for what is missing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from host.calibration import Calibration
    from host.devices import DeviceEntry
    from targets import Board, HardwareModel

_AT_ONCE = 16


def devices() -> list[tuple[str, str]]:
    """Names of the devices with what each is and when it was calibrated, or why it does not answer."""
    from host.devices import DeviceEntry, Registry

    entries = [DeviceEntry("local", "local"), *Registry().entries().values()]
    # A board that is off answers nothing for a while: all are asked at once.
    with ThreadPoolExecutor(max_workers=min(len(entries), _AT_ONCE)) as pool:
        texts = list(pool.map(_device_text, entries))
    return [(entry.name, text) for entry, text in zip(entries, texts, strict=True)]


def _device_text(entry: DeviceEntry) -> str:
    from host.calibration import board_of, calibrated
    from host.errors import EdgeError, UserError
    from host.transport import connect_entry

    words = [word for word in (entry.address, entry.board, *(f"#{tag}" for tag in entry.tags)) if word]
    registered = f"{' '.join(words)}; " if words else ""
    try:
        with connect_entry(entry) as device:
            description = device.describe()
    except EdgeError as error:
        return f"{registered}does not answer: {error}"
    memory = description.memory_bytes / 2**30
    text = f"{registered}{description.cpu_name}, {description.cores} cores, {memory:.0f} GiB"
    try:
        _, remark = calibrated(entry.name, description, board_of(description, entry.name))
    except UserError as error:
        remark = str(error)
    return f"{text}; {remark or 'not calibrated'}"


def calibrate(
    name: str, progress: Callable[[int, int], None] | None = None, records: str = ""
) -> tuple[Calibration, HardwareModel, Path]:
    """Measure a device and keep the figures for the programs that are made for it.

    A board that has no epoch (`host.records.epochs`) has its first one from then on.

    Args:
        name: of the device.
        progress: receives the rounds.
        records: URL or path of the records; the user's own if "".

    Returns:
        The measured figures, the declared figures, and the file of the measured ones.

    Raises:
        UnknownDeviceError: no device has this name.
        MeasureError: the figures are implausible; nothing is stored.
        DeviceError: the device went away.
    """
    from host.devices import resolve

    resolve(name)  # before the packages of the compiler are loaded
    from host import calibration
    from host.calibration.procedure import calibrate as run_calibration
    from host.commands.watch import begin_first_epoch
    from host.compile.tuning.kernel_tuning import records_of
    from host.options import CompileOptions
    from host.transport import connect

    with connect(name) as device:
        found = run_calibration(device, progress)
        declared = calibration.board_of(device.describe(), name).hardware
        begin_first_epoch(device, records_of(CompileOptions(Path(), records=records)))
    return found, declared, calibration.save(found)


def targets() -> dict[str, tuple[str, ...]]:
    """Names that `sdk compile --target` takes, with what each is, in a few lines."""
    from targets import declared_boards

    boards = {name: _target_lines(board) for name, board in declared_boards().items()}
    return {"local": ("this machine",), **boards}


def _target_lines(board: Board) -> tuple[str, ...]:
    hardware = board.hardware
    vectors = f"{hardware.vector_bits}-bit vectors" if hardware.lanes > 1 else "no vectors"
    clock = f"{hardware.cores} cores at {hardware.frequency_hz / 1e9:.2f} GHz"
    gpu = f", {board.gpu.arch}" if board.gpu else ""
    boundary = f" ({board.boundary})" if board.boundary else ""
    power = f"power from {', '.join(board.sensors)}{boundary}" if board.sensors else "no power sensor"
    around = [power, f"{board.payload} executor"]
    if board.family:
        around.insert(0, f"family {board.family}")
    if board.power_modes:
        around.append(f"modes {', '.join(board.power_modes)}")
    return (f"{board.title}: {board.tvm_target['mcpu']}{gpu}, {vectors}, {clock}", "; ".join(around))


def environment() -> dict[str, dict[str, str]]:
    """Versions, engines, and what this machine's agent found, with reasons for what is missing."""
    from host.engines import engines, unavailable
    from host.transport import connect
    from host.versions import versions

    known = {name: unavailable(name) or f"available ({engine.title})" for name, engine in engines().items()}
    with connect("local") as device:
        description = device.describe()
        state = device.state()
        sensor = device.sensor()
    machine = {
        "processor": description.cpu_name,
        "cores": str(description.cores),
        "memory": f"{description.memory_bytes / 2**30:.1f} GiB",
        "caches": ", ".join(f"{k} {v >> 10} KiB" for k, v in description.cache_bytes.items()),
    }
    return {
        "host": {**versions(), "interpreter": sys.executable},
        "engines": known,
        "local": machine
        | {
            "energy": f"unavailable: {sensor['unavailable']}"
            if sensor["unavailable"]
            else str(sensor["source"])
        }
        | {name: str(value) for name, value in state.items()},
        "agent": dict(description.software),
        "devices": dict(devices()),
    }
