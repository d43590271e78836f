"""The file of the user's devices, and what names, families and tags mean."""

from __future__ import annotations

import threading

import pytest

from host.devices import DeviceEntry, Registry, resolve
from host.devices.entry import parse_address
from host.errors import UnknownDeviceError, UserError
from host.model import BOARD, EMULATOR, SIMULATION
from host.model.timing import TimingPolicy, kept_timing

ORIN = DeviceEntry(
    "orin", "ssh", "10.0.0.7", "me", 2222, "jetson_orin_nano", ("kitchen", "fast"), {"identity": '/a "b"/é'}
)
PI = DeviceEntry("pi.5", "ssh", "pi5", board="raspberry_pi_5", tags=("kitchen",))


@pytest.fixture
def registry(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    found = Registry()
    found.add(ORIN)
    found.add(PI)
    return found


def test_what_is_written_is_read(registry, tmp_path):
    assert registry.path == tmp_path / "edgetlm" / "devices.toml"
    assert registry.entries() == {"orin": ORIN, "pi.5": PI}
    assert {path.name for path in registry.path.parent.iterdir()} == {"devices.toml", "devices.lock"}


def test_removed_and_recognised(registry):
    assert registry.set_board("orin", "jetson_agx_orin").board == "jetson_agx_orin"
    assert registry.remove("orin").board == "jetson_agx_orin"
    assert list(registry.entries()) == ["pi.5"]
    with pytest.raises(UnknownDeviceError):
        registry.remove("orin")


def test_an_unknown_name_lists_the_known_ones_and_the_near_one(registry):
    with pytest.raises(UnknownDeviceError, match=r"'orln' \(did you mean orin\?\).*local, orin, pi\.5"):
        registry.find("orln")


def test_a_family_is_the_one_device_of_it(registry):
    assert registry.find("jetson") == ORIN
    assert registry.find("raspberry-pi") == PI
    with pytest.raises(UnknownDeviceError, match=r"family riscv .*sdk devices add"):
        registry.find("riscv")
    registry.add(DeviceEntry("nano", "ssh", "nano", board="jetson_nano"))
    with pytest.raises(UserError, match=r"nano \(jetson_nano\), orin \(jetson_orin_nano\); choose one"):
        registry.find("jetson")


def test_what_times_are_worth_is_known_by_how_a_device_is_reached(registry):
    """Its name says nothing: a simulated board may be registered under any."""
    registry.add(DeviceEntry("desk", "replay", options={"file": "board.toml"}))
    registry.add(DeviceEntry("box", "emulated", options={"folder": "box"}))
    registry.add(DeviceEntry("vm", "ssh", "127.0.0.1", options={"machine": "vm"}))
    worth = {
        name: registry.find(name).timing for name in ("local", "orin", "desk", "replay:b.toml", "box", "vm")
    }
    assert worth == {
        "local": BOARD,
        "orin": BOARD,
        "desk": SIMULATION,
        "replay:b.toml": SIMULATION,
        "box": EMULATOR,
        "vm": EMULATOR,
    }


def test_names_tags_and_families_resolve_in_order_and_once(registry):
    assert resolve("jetson,tag:kitchen") == [ORIN, PI]
    assert resolve(["tag:kitchen", "orin"]) == [ORIN, PI]
    assert [one.kind for one in resolve("local, replay:run.json")] == ["local", "replay"]
    with pytest.raises(UnknownDeviceError, match="no device has the tag 'attic'; there is fast, kitchen"):
        resolve("tag:attic")
    with pytest.raises(UserError, match="names no device"):
        resolve(" , ")


@pytest.mark.parametrize("name", ["", "a b", "-x", "local", "tag", "a/b", "jetson"])
def test_names_that_cannot_be(registry, name):
    with pytest.raises(UserError):
        registry.add(DeviceEntry(name, "ssh", "host"))
    assert len(registry.entries()) == 2


def test_a_name_is_given_once(registry):
    with pytest.raises(UserError, match="there is a device orin already"):
        registry.add(ORIN)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[devices.a]\nhost = 'x'\n", "has no kind"),
        ("[devices.a]\nkind = 'ssh'\n", "needs an address"),
        ("[devices.a]\nkind = 'carrier-pigeon'\nhost = 'x'\n", "no kind of device"),
        ("[devices.a]\nkind = 'ssh'\nhost = 'x'\nport = '22'\n", "wrong type"),
        ("[devices.a]\nkind = 'ssh'\nhost = 'x'\nport = 99999\n", "is no port"),
        ("[devices.a]\nkind = 'ssh'\nhost = 'x'\ncolour = 'red'\n", "unknown field 'colour'"),
        ("devices = 3\n", "more than"),
        ("[devices\n", "cannot be read"),
    ],
)
def test_a_damaged_file_says_where(registry, text, message):
    registry.path.write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        registry.entries()
    assert str(registry.path) in str(caught.value) or "a:" in str(caught.value)


def test_writers_at_once_lose_nothing(registry):
    names = [f"board{number}" for number in range(12)]
    threads = [
        threading.Thread(target=Registry().add, args=(DeviceEntry(name, "ssh", "host"),)) for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(registry.entries()) == {*names, "orin", "pi.5"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("board", ("", "board", 0)),
        ("me@10.0.0.7:2222", ("me", "10.0.0.7", 2222)),
        ("me@[fe80::1%eth0]:22", ("me", "fe80::1%eth0", 22)),
    ],
)
def test_addresses(text, expected):
    assert parse_address(text) == expected


@pytest.mark.parametrize(
    "text", ["", "@host", "me@", "host:port", "a b", "-oProxyCommand=x", "host:123456", "x;y", "$(x)", "a`b`"]
)
def test_what_is_no_address(text):
    with pytest.raises(UserError, match="write it as user@address"):
        parse_address(text)


@pytest.mark.parametrize(
    ("emulated", "simulated", "device", "kept"),
    [
        (False, False, "pi5", BOARD),
        (False, True, "a name of ours", SIMULATION),
        # Before a result said so, the name was all.
        (False, False, "replay:board.toml", SIMULATION),
        (True, True, "pi", EMULATOR),
    ],
)
def test_a_kept_result_is_worth_what_its_device_was(
    emulated: bool, simulated: bool, device: str, kept: TimingPolicy
) -> None:
    assert kept_timing(emulated, simulated, device) == kept
