"""The checks of a board: each finding says what is wrong and what to type."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from device_agent.contract.manifest import OF_THE_BOARD
from host.devices import DeviceEntry
from host.devices.answers import BoardFacts, BoardStatus, facts_of
from host.devices.board_shell import order
from host.devices.install import board_status
from host.errors import EdgeError
from host.payload import PayloadError, agent_archive, platform_of
from host.payload.engines import engine_parts
from host.ssh import SshConnection
from host.transport.device import Device
from host.transport.ssh import connect_ssh, ssh_connection_to
from targets import MachineDescription, board_for

# A clock that is further off than this has records and certificates go wrong.
_LARGEST_SKEW_S = 5.0
_MIN_FREE_BYTES = 300_000_000
_PEERS = ("onnxruntime", "litert", "tensorrt", "ncnn")
# Bits of the Raspberry Pi's get_throttled (documentation of vcgencmd).
_PI_FLAGS = {
    0: "the supply is too weak now",
    1: "the clock is capped now",
    2: "throttled now",
    3: "at the soft temperature limit now",
    16: "the supply was too weak",
    17: "the clock was capped",
    18: "it was throttled",
    19: "it was at the soft temperature limit",
}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        topic: what.
        good: whether it is as it should be.
        text: how it is.
        advice: what to type, "" where nothing need be done.
    """

    topic: str
    good: bool
    text: str
    advice: str = ""


def examine_board(entry: DeviceEntry) -> list[Finding]:
    """Look at a board from the cable to the engines; findings end where nothing further can be reached.

    Raises:
        UserError: the user's SSH configuration cannot be used.
    """
    findings: list[Finding] = []
    try:
        ssh = ssh_connection_to(entry)
    except EdgeError as error:
        return [_failed("ssh", error)]
    with ssh:
        findings.append(Finding("ssh", True, f"{ssh.endpoint.address} answers"))
        try:
            home = entry.options.get("home", "")
            before = time.time()
            answer = order(ssh, "examine", home=home)
            after = time.time()
            status, facts = board_status(ssh, home), facts_of(entry.name, answer)
        except EdgeError as error:
            return [*findings, _failed("python", error)]
        findings += _bare(ssh, status, facts)
        findings.append(_clock(facts.time_s, before, after))
        findings += _agent(entry, ssh, status, facts)
    return findings


def _bare(ssh: SshConnection, status: BoardStatus, facts: BoardFacts) -> Iterator[Finding]:
    yield Finding("python", True, f"{status.python}, {facts.system}, {facts.machine}, {facts.libc}")
    free = status.free_bytes
    enough = free >= _MIN_FREE_BYTES
    advice = "" if enough else f"ssh {ssh.endpoint.address} df -h {shlex.quote(status.home)}"
    yield Finding("disk", enough, f"{free / 1e9:.1f} GB free in {status.home}", advice)
    yield _service(ssh, status.unit, facts.user)
    mode = facts.power_mode
    if mode:
        yield Finding("power", True, mode)
    flags = _pi_flags(facts.throttled)
    if flags:
        yield Finding("throttled", False, ", ".join(flags), "use the official supply, and cool the board")


def _service(ssh: SshConnection, unit: Mapping[str, Any], user: str) -> Finding:
    if unit["system"]:
        return Finding("service", True, "a hardened unit of the system starts the agent")
    if not unit["available"]:
        return Finding("service", True, f"{unit['reason']}: whoever connects starts the agent")
    enabled = "a unit of the user starts the agent" if unit["enabled"] else "no unit starts the agent"
    if unit["linger"]:
        return Finding("service", True, f"{enabled}, also without a login")
    advice = f"ssh -t {ssh.endpoint.address} sudo loginctl enable-linger {shlex.quote(user)}"
    return Finding("service", False, f"{enabled}, only while somebody is logged in", advice)


def _pi_flags(text: str) -> list[str]:
    """The flags of `vcgencmd get_throttled` ("throttled=0x50000"), in words."""
    _, _, number = text.partition("=")
    try:
        value = int(number, 16)
    except ValueError:
        return []
    return [words for bit, words in _PI_FLAGS.items() if value >> bit & 1]


def _clock(board_s: float, before_s: float, after_s: float) -> Finding:
    # Somewhere between sending the question and having the answer.
    skew = max(before_s - board_s, board_s - after_s, 0.0)
    text = "agrees with this host's" if skew < 1.0 else f"is {skew:.0f} s off this host's"
    good = skew <= _LARGEST_SKEW_S
    return Finding("clock", good, text, "" if good else "sudo timedatectl set-ntp true (on the board)")


def _agent(
    entry: DeviceEntry, ssh: SshConnection, status: BoardStatus, facts: BoardFacts
) -> Iterator[Finding]:
    install = f"sdk devices install-agent {entry.name}"
    if not status.agent:
        yield Finding("agent", False, "is not installed", install)
        return
    if status.agent != agent_archive().sha256:
        yield Finding("agent", False, "is of another version; the next connection replaces it", install)
        return
    yield Finding("agent", True, f"version {status.agent[:12]}, this host's, in {status.home}")
    loads = facts.tvm_ffi
    yield Finding("runtime", not loads, loads or "loads", install if loads else "")
    try:
        device = connect_ssh(entry)
    except EdgeError as error:
        log = f"; its log ends: {facts.agent_log}" if facts.agent_log else ""
        yield Finding("connection", False, f"{error}{log}", install)
        return
    with device:
        try:
            yield from examine_device(device, tuple(status.serves))
        except EdgeError as error:
            yield _failed("agent", error)


def examine_device(device: Device, serves: tuple[str, ...] | None = None) -> Iterator[Finding]:
    """Examine what a device's agent reports.

    Args:
        device: a connected one.
        serves: engines that are installed on it; None where its agent finds them for itself.

    Raises:
        DeviceError: it went away.
    """
    machine = device.describe()
    board = board_for(machine)
    if board is None:
        text = f"none is like this machine ({machine.cpu_name}, {machine.machine})"
        yield Finding("board", False, text, "describe it in a TOML file: docs/devices.md")
    else:
        memory = machine.memory_bytes / 2**30
        yield Finding("board", True, f"{board.name}: {board.title}, {machine.cores} cores, {memory:.1f} GiB")
    sensor = device.sensor()
    reason = sensor["unavailable"]
    rails = ", ".join(sensor.get("rails") or ())
    what = f"{sensor['source']} ({rails or 'no rails'}; {sensor.get('boundary') or 'unknown boundary'})"
    text = f"unavailable: {reason}" if reason else what
    yield Finding("sensor", not reason, text)
    state = device.state()
    governors = sorted(set((state.get("governors") or {}).values()))
    if governors:
        yield Finding("governor", True, ", ".join(governors))
    temperatures = state.get("temperatures_c") or {}
    if temperatures:
        name, hottest = max(temperatures.items(), key=lambda item: item[1])
        yield Finding(
            "heat", hottest < 80.0, f"{hottest:.0f} C at {name}", "" if hottest < 80.0 else "cool the board"
        )
    yield from _engines(machine, serves)


def _engines(machine: MachineDescription, serves: tuple[str, ...] | None) -> Iterator[Finding]:
    for engine in _PEERS:
        if serves is None or engine in OF_THE_BOARD:
            found = machine.software.get(engine)
            yield Finding(engine, found is not None, found or "unavailable: the board's system has none")
        elif engine in serves:
            yield Finding(engine, True, "installed")
        else:
            try:
                engine_parts(engine, platform_of(machine))
            except PayloadError as error:
                yield Finding(engine, False, f"unavailable: {error}")
            else:
                yield Finding(engine, True, "is sent when a deployment compares with it")


def _failed(topic: str, error: EdgeError) -> Finding:
    text, _, advice = str(error).partition("; ")
    return Finding(topic, False, text, advice)
