"""Bundles on this device: what is checked, and who is trusted, before anything of one is used."""

from __future__ import annotations

import os
from typing import NamedTuple, Optional

from device_agent.contract.manifest import MANIFEST, ContractError
from device_agent.contract.trust import FILE, TrustStore
from device_agent.contract.verify import VerifiedBundle, VerifiedFiles, check_trust, verify_directory
from device_agent.errors import AgentError
from device_agent.store.agent_folder import AgentFolder, default_root

_VERIFIED = "verified"


class BundleError(AgentError):
    """A bundle that is damaged, incomplete, of another schema version, or not trusted."""

    def __init__(self, message: str) -> None:
        super().__init__("bundle", message)


class OpenedBundle(NamedTuple):
    """A bundle that may be used.

    Attributes:
        bundle: verified.
        warning: one line where its signer is not trusted and was not to be; else None.
    """

    bundle: VerifiedBundle
    warning: Optional[str]


def trust_file(store: Optional[str] = None) -> str:
    """The file of trusted keys that goes with a folder of bundles.

    Args:
        store: the folder; by default EDGETLM_STORE, or that of this user's agent.
    """
    folder = store or os.environ.get("EDGETLM_STORE") or AgentFolder(default_root()).device
    return os.path.join(os.path.abspath(folder), FILE)


def verified_files(keys: str) -> VerifiedFiles:
    """What was checked before, which is remembered beside a file of trusted keys."""
    return VerifiedFiles(os.path.join(os.path.dirname(keys), _VERIFIED))


def open_bundle(directory: str, trust: str = "signed", keys: Optional[str] = None) -> OpenedBundle:
    """Check a bundle's directory: its manifest, its signature, every file, and its signer.

    Args:
        directory: of the bundle.
        trust: "signed": its signer has to be trusted here; "unsigned": anybody's will do.
        keys: file of trusted keys; that of this user's agent by default.

    Raises:
        BundleError: it is damaged, incomplete, revoked, or not trusted.
    """
    path = keys or trust_file()
    try:
        bundle = verify_directory(directory, verified_files(path))
        return OpenedBundle(bundle, check_trust(bundle, TrustStore(path).read(), trust))
    except FileNotFoundError as error:
        raise BundleError("%s is not a bundle: it has no %s" % (directory, MANIFEST)) from error
    except ContractError as error:
        raise BundleError("bundle %s: %s" % (directory, error)) from error
