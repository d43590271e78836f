"""Entry points of installed packages: found, loaded, refused in one line that names the package."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from host import extensions
from host.devices import DeviceEntry, Registry
from host.devices.entry import checked
from host.engines import engines
from host.errors import DeviceError, UserError
from host.lowering.ops import known_operators
from host.lowering.spec import OpSpec
from host.model import EMULATOR
from host.transport import Device, connect_entry

RELU = OpSpec("relu")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    found: list[EntryPoint] = []

    def of_group(group: str) -> list[EntryPoint]:
        return [entry for entry in found if entry.group == group]

    monkeypatch.setattr("importlib.metadata.entry_points", of_group)
    return found


def entry(kind: str, name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, f"edgetlm.{kind}")


def test_extensions_come_in_the_order_of_their_names(installed: list[EntryPoint]) -> None:
    installed += [entry("engines", "b", "m:b"), entry("engines", "a", "m:a"), entry("rules", "c", "m:c")]
    assert list(extensions.extensions("engines")) == ["a", "b"]


def test_a_package_on_the_path_twice_is_one(installed: list[EntryPoint]) -> None:
    installed += [entry("engines", "a", "m"), entry("engines", "a", "m")]
    assert list(extensions.extensions("engines")) == ["a"]


def test_two_packages_cannot_have_one_name(installed: list[EntryPoint]) -> None:
    installed += [entry("engines", "a", "m"), entry("engines", "a", "other")]
    with pytest.raises(UserError, match=r"engine a of .* \(other\) has the name of engine a"):
        extensions.extensions("engines")


def test_a_package_cannot_take_a_name_of_the_product(installed: list[EntryPoint]) -> None:
    installed.append(entry("engines", "onnxruntime", "m"))
    with pytest.raises(UserError, match="has the name of the product itself"):
        engines()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("no_such_module", "does not load (ModuleNotFoundError: No module named 'no_such_module')"),
        ("math:no_such_name", "does not load (AttributeError"),
        ("math", "is no module with TITLE, FORMATS, MODULES, create"),
    ],
)
def test_what_is_no_engine_is_refused_in_one_line(
    installed: list[EntryPoint], value: str, words: str
) -> None:
    installed.append(entry("engines", "mine", value))
    with pytest.raises(UserError) as caught:
        engines()
    assert words in str(caught.value)
    assert str(caught.value).endswith("mend or remove that package")
    assert "\n" not in str(caught.value)


def test_an_operator_cannot_take_a_name_of_the_product(installed: list[EntryPoint]) -> None:
    installed.append(entry("operators", "mine", "host.lowering.ops.contraction.winograd:SPECS"))
    with pytest.raises(UserError, match=r"operator mine of .* is no object of host\.lowering\.spec\.OpSpec"):
        known_operators.__wrapped__()
    installed[:] = [entry("operators", "mine", "tests.unit.test_extensions:RELU")]
    with pytest.raises(UserError, match=r"operator mine of .* have the name 'relu'"):
        known_operators.__wrapped__()


def test_a_transport_is_named_before_its_address(installed: list[EntryPoint]) -> None:
    installed.append(entry("transports", "serial", "m:connect"))
    found = Registry().find("serial:/dev/ttyUSB0")
    assert (found.kind, found.options) == ("serial", {"address": "/dev/ttyUSB0"})
    assert checked(DeviceEntry("bench", "serial")).kind == "serial"


def test_a_device_whose_transport_is_gone_says_so(installed: list[EntryPoint]) -> None:
    with pytest.raises(DeviceError, match="no installed package has the transport serial"):
        connect_entry(DeviceEntry("bench", "serial"))
    with pytest.raises(UserError, match="no kind of device is called 'serial'"):
        checked(DeviceEntry("bench", "serial"))


def emulator(entry: DeviceEntry) -> Device:
    """A transport's device that no agent answers for."""
    device = object.__new__(Device)
    device.timing = EMULATOR
    return device


def test_a_transport_says_what_the_times_of_its_devices_are_worth(installed: list[EntryPoint]) -> None:
    installed.append(entry("transports", "serial", f"{__name__}:emulator"))
    assert connect_entry(DeviceEntry("bench", "serial")).timing == EMULATOR


def test_a_transport_that_returns_no_device_is_refused(installed: list[EntryPoint]) -> None:
    installed.append(entry("transports", "serial", "builtins:repr"))
    with pytest.raises(DeviceError, match="returned no device"):
        connect_entry(DeviceEntry("bench", "serial"))
