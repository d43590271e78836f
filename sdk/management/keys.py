"""Keys: this host's own, and those that a device trusts or refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from device_agent.contract.trust import TrustedKeys
    from host.keys import HostKey


def own() -> HostKey:
    """This host's key, which signs every bundle that is made here.

    Raises:
        UserError: the file of the key is damaged, or others can read it.
    """
    from host.keys import host_key

    return host_key()


def listed(device: str = "local") -> TrustedKeys:
    """The keys that a device trusts, and what it refuses.

    Raises:
        UnknownDeviceError: no device has this name.
        DeviceError: it does not answer.
    """
    from host.transport import connect

    with connect(device) as connected:
        return connected.keys()


def trust(key: str, name: str, device: str = "local") -> None:
    """Have a device run the bundles of another host, even if its key was revoked before.

    Args:
        key: the host's public key, 64 hexadecimal digits (`sdk keys show` there).
        name: of the key in messages of the device.
        device: name of the device.

    Raises:
        BundleError: it is no key.
        UnknownDeviceError: no device has this name.
        DeviceError: it does not answer.
    """
    from host.transport import connect

    with connect(device) as connected:
        connected.trust_key(key, name)


def revoke(identity: str, device: str = "local") -> str:
    """Have a device refuse a host's bundles, or one version of a bundle, from now on.

    Args:
        identity: the name of a key, its first 8 digits or more, or the whole version of a bundle.
        device: name of the device.

    Returns:
        The name of what is refused.

    Raises:
        BundleError: the name means nothing to the device, or several things.
        UnknownDeviceError: no device has this name.
        DeviceError: it does not answer.
    """
    from host.transport import connect

    with connect(device) as connected:
        return connected.revoke(identity)
