"""The replies of agents, checked field by field: converted to typed values, or refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from device_agent.contract.fields import Fields, is_number
from device_agent.contract.limits import LIMITS
from device_agent.contract.text import printable
from host.errors import DeviceError, MeasureError
from host.model import Energy, Measurement
from targets import MachineDescription

# Fields of a frame, which are no part of an answer.
_OF_THE_FRAME = ("ok", "blob_bytes")
_MAX_CORES = 1 << 16


def fields_of(device: str, values: Mapping[str, Any]) -> Fields:
    """Access to a reply; a wrong field is a DeviceError that names the device and the field.

    Args:
        device: its name.
        values: the reply, or an object in it.
    """
    return Fields(
        values,
        lambda text: DeviceError(
            f"{device}: its agent sent a wrong answer: {text}; bring its agent up to date"
        ),
    )


def machine_of(fields: Fields, board: str) -> MachineDescription:
    """The machine in the reply to `describe`.

    Args:
        fields: of the reply.
        board: that the user chose for the device.

    Raises:
        DeviceError: a field is wrong.
    """
    caches = {name: int(size) for name, size in fields.number_map("cache_bytes").items()}
    software = fields.text_map("software")
    # An agent from before this field has a client, or would have been replaced.
    system = fields.text_map("system") if fields.has("system") else {}
    return MachineDescription(
        machine=fields.text("machine"),
        cpu_name=shown(fields.text("cpu_name")),
        cores=fields.whole("cores", 1, _MAX_CORES),
        features=tuple(fields.texts("features")),
        cache_bytes=caches,
        frequency_hz=fields.number("frequency_hz", 0.0, 1e15),
        memory_bytes=fields.whole("memory_bytes", 0, 1 << 62),
        device_tree_model=shown(fields.text("device_tree_model", standard="")),
        software={shown(name): shown(version) for name, version in software.items()},
        board=board,
        system={shown(name): shown(version) for name, version in system.items()},
    )


def state_of(fields: Fields) -> dict[str, Any]:
    """A device's state; see `device_agent.board.machine.Machine.state`.

    Raises:
        DeviceError: a field is wrong.
    """
    state: dict[str, Any] = scalars(fields)
    for name in ("time_s", "load_1min", "throttle_count"):
        if fields.has(name):
            fields.number(name)
    if fields.has("clocks_hz"):
        state["clocks_hz"] = fields.numbers("clocks_hz")
    for name in ("temperatures_c", "fans_rpm", "throttle"):
        if fields.has(name):
            fields.number_map(name)
            state[name] = {shown(key): value for key, value in fields.object(name).values.items()}
    if fields.has("governors"):
        governors = fields.text_map("governors")
        state["governors"] = {shown(key): shown(text) for key, text in governors.items()}
    if fields.has("limits_hz"):
        limits = fields.object("limits_hz")
        state["limits_hz"] = {shown(key): limits.numbers(key) for key in limits.values}
    if fields.has("devfreq"):
        parts = fields.object("devfreq")
        state["devfreq"] = {shown(key): scalars(parts.object(key)) for key in parts.values}
    return state


def sensor_of(fields: Fields) -> dict[str, Any]:
    """The power sensor in the reply to `sensor`.

    Raises:
        DeviceError: a field is wrong.
    """
    sensor = scalars(fields)
    for name in ("source", "quantity", "boundary"):
        sensor[name] = shown(fields.text(name, standard=""))
    sensor["rails"] = [shown(rail) for rail in fields.texts("rails")] if fields.has("rails") else []
    sensor["unavailable"] = shown(fields.text("unavailable")) if fields.has("unavailable") else None
    return sensor


def installed_of(fields: Fields) -> dict[str, Any]:
    """A version of a bundle in the reply to `bundle.list`.

    Raises:
        DeviceError: a field is wrong.
    """
    manifest = fields.object("manifest")
    if manifest.has("signature"):
        signature = manifest.object("signature")
        if signature.has("length"):
            length = signature.object("length")
            length.text("name")
            for name in ("low", "high"):
                length.whole(name, 0, LIMITS.wire.dimension)
    return {
        **scalars(fields),
        "name": shown(fields.text("name")),
        "version": shown(fields.text("version")),
        "active": fields.truth("active"),
        "earlier": fields.truth("earlier", False),
        "path": shown(fields.text("path")),
        "backend": shown(fields.text("backend", standard="")),
        "manifest": dict(manifest.values),
    }


def scalars(fields: Fields) -> dict[str, Any]:
    """The fields that are texts, numbers, true, false or null; lists and objects are left out."""
    found: dict[str, Any] = {}
    for name, value in fields.values.items():
        if name in _OF_THE_FRAME:
            continue
        if isinstance(value, str):
            found[shown(name)] = shown(value)
        elif value is None or isinstance(value, bool) or is_number(value):
            found[shown(name)] = value
    return found


def shown(text: str) -> str:
    """Text of an agent, fit to be shown and kept."""
    return printable(text, LIMITS.wire.message_characters)


def signature_of(fields: Fields) -> dict[str, Any]:
    """The signature in the reply to `load`; {} where the engine knows none.

    Raises:
        DeviceError: it is none.
    """
    if not fields.has("signature"):
        return {}
    signature = fields.object("signature")
    return {
        side: [_interface_of(one) for one in signature.objects(side, LIMITS.wire.tensors)]
        for side in ("inputs", "outputs")
        if signature.has(side)
    }


def _interface_of(fields: Fields) -> dict[str, Any]:
    # A size may be a name or null where the model leaves it open.
    sizes = fields.items("shape", LIMITS.wire.rank) if fields.has("shape") else None
    if sizes is not None and not all(size is None or isinstance(size, (int, str)) for size in sizes):
        raise fields.wrong("shape", "a list of sizes")
    shape = sizes and [shown(size) if isinstance(size, str) else size for size in sizes]
    return {**scalars(fields), "shape": shape}


def measurement_of(reply: Mapping[str, Any], device: str = "the device") -> Measurement:
    """The measurement in a reply of the agent, with its samples.

    Args:
        reply: as it came.
        device: its name, for messages.

    Raises:
        MeasureError: it holds no samples.
        DeviceError: a field is wrong.
    """
    fields = fields_of(device, reply)
    try:
        times = tuple(fields.numbers("times_s"))
    except DeviceError as error:
        raise MeasureError(f"the device returned no usable time; measure again ({error})") from error
    low, high = LIMITS.records.shortest_s, LIMITS.records.longest_s
    if not times or not all(low <= seconds <= high for seconds in times):
        # A time of nothing would be the fastest of all.
        raise MeasureError("the device returned no usable time; measure again")
    return replace(conditions_of(reply, device), times_s=times)


def conditions_of(reply: Mapping[str, Any], device: str = "the device") -> Measurement:
    """How something was measured, out of a reply of the agent: a measurement without samples.

    Args:
        reply: as it came.
        device: its name, for messages.

    Raises:
        DeviceError: a field is wrong.
    """
    fields = fields_of(device, reply)
    reasons = fields.texts("throttle_reasons") if fields.has("throttle_reasons") else []
    return Measurement(
        times_s=(),
        energy=energy_of(fields.object("energy").values if fields.has("energy") else {}, device),
        state_before=state_of(fields.object("state_before")),
        state_after=state_of(fields.object("state_after")),
        threads=fields.whole("threads", 1, LIMITS.wire.threads),
        throttled=fields.truth("throttled", False),
        throttle_reasons=tuple(shown(reason) for reason in reasons),
        invalid=shown(fields.text("invalid", standard="")),
        conditions=scalars(fields.object("conditions")) if fields.has("conditions") else {},
    )


def energy_of(record: Mapping[str, Any], device: str = "the device") -> Energy:
    """The energy in a reply of the agent; fields that it does not have stay None.

    Raises:
        DeviceError: a field is wrong.
    """
    fields = fields_of(device, record)

    def text(name: str, standard: str = "") -> str:
        return shown(fields.text(name, standard=standard))

    def number(name: str) -> float | None:
        return fields.number(name) if fields.has(name) else None

    def count(name: str) -> int | None:
        return fields.whole(name, 0, 1 << 62) if fields.has(name) else None

    return Energy(
        kind=text("kind", "unavailable"),
        gross_j=number("gross_j"),
        above_idle_j=number("above_idle_j"),
        source=text("source", "not asked for"),
        boundary=text("boundary"),
        rails=tuple(shown(rail) for rail in fields.texts("rails")) if fields.has("rails") else (),
        mean_w=number("mean_w"),
        peak_w=number("peak_w"),
        idle_w=number("idle_w"),
        idle_std_w=number("idle_std_w"),
        std_j=number("std_j"),
        trials=count("trials"),
        n_inferences=count("n_inferences"),
        n_samples=count("n_samples"),
        n_dropped=count("n_dropped"),
        duration_s=number("duration_s"),
        sample_period_s=number("sample_period_s"),
        accuracy=text("accuracy"),
        reason=text("reason"),
        trace=_trace_of(fields),
    )


def _trace_of(fields: Fields) -> tuple[tuple[float, float, float | None], ...]:
    trace = []
    for point in fields.items("trace") if fields.has("trace") else []:
        good = isinstance(point, list) and len(point) == 3 and is_number(point[0]) and is_number(point[1])
        if not good or not (point[2] is None or is_number(point[2])):
            raise fields.wrong("trace", "a list of times, watts and temperatures")
        at_s, watts, hottest = point
        trace.append((float(at_s), float(watts), None if hottest is None else float(hottest)))
    return tuple(trace)
