"""Commands of a host about the keys whose bundles this device runs.

A host that may send these commands can run code on the device as this user anyway. The keys protect against
bundles of other makers, not against hosts.
"""

from __future__ import annotations

from typing import Callable, Dict, Optional, TypeVar

from device_agent.contract.fields import Fields
from device_agent.contract.manifest import ContractError
from device_agent.contract.trust import TrustedKeys, TrustStore
from device_agent.store.opened_bundle import BundleError
from device_agent.wire.frames import Header

_Result = TypeVar("_Result")
KeyCommand = Callable[[Fields], Optional[Header]]


class KeyCommands:
    """The commands `keys.*`.

    Args:
        store: of the device.
    """

    def __init__(self, store: TrustStore) -> None:
        self._store = store

    def all(self) -> Dict[str, KeyCommand]:
        """The functions that answer the commands `keys.*`, by the names of the commands."""
        return {
            "keys.list": lambda fields: _listed(_refused(self._store.read)),
            "keys.enrol": self._enrol,
            "keys.trust": self._trust,
            "keys.revoke": self._revoke,
        }

    def _enrol(self, fields: Fields) -> Header:
        """Trusts the key of a host that was added, unless that key was revoked."""
        key, name = fields.text("key"), fields.text("name")
        return {"trusted": _refused(lambda: self._store.enrol(key, name))}

    def _trust(self, fields: Fields) -> None:
        key, name = fields.text("key"), fields.text("name")
        _refused(lambda: self._store.trust(key, name))

    def _revoke(self, fields: Fields) -> Header:
        wanted = fields.text("identity")
        return {"revoked": _refused(lambda: self._store.revoke(wanted))._asdict()}


def _listed(keys: TrustedKeys) -> Header:
    return {
        "keys": [one._asdict() for one in keys.keys],
        "revoked": [one._asdict() for one in keys.revoked],
    }


def _refused(change: Callable[[], _Result]) -> _Result:
    """The result of a change, with a refusal of the contract as an error for the host."""
    try:
        return change()
    except ContractError as error:
        raise BundleError(str(error)) from error
