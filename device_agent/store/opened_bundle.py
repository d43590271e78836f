"""Opens bundles on this device. Content and signer are checked before anything of a bundle is used."""

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
    """A bundle is damaged, incomplete, of another schema version, or not trusted."""

    def __init__(self, message: str) -> None:
        super().__init__("bundle", message)


class OpenedBundle(NamedTuple):
    """A bundle that may be used.

    Attributes:
        bundle: the verified bundle.
        warning: one line if the signer is not trusted and need not be; else None.
    """

    bundle: VerifiedBundle
    warning: Optional[str]


def trust_file(store: Optional[str] = None) -> str:
    """The path of the file of trusted keys of a bundle store.

    Args:
        store: folder of the store; by default EDGETLM_STORE, or the store of this user's agent.
    """
    folder = store or os.environ.get("EDGETLM_STORE") or AgentFolder(default_root()).device
    return os.path.join(os.path.abspath(folder), FILE)


def verified_files(keys: str) -> VerifiedFiles:
    """The record of files that were verified before, which is kept beside a file of trusted keys."""
    return VerifiedFiles(os.path.join(os.path.dirname(keys), _VERIFIED))


def open_bundle(directory: str, trust: str = "signed", keys: Optional[str] = None) -> OpenedBundle:
    """Opens a bundle after checking its manifest, its signature, every file, and its signer.

    Args:
        directory: directory of the bundle.
        trust: "signed" if the signer must be trusted here, "unsigned" if any signer is accepted.
        keys: file of trusted keys; by default that of this user's agent.

    Raises:
        BundleError: the bundle is damaged, incomplete, revoked, or not trusted.
    """
    path = keys or trust_file()
    try:
        bundle = verify_directory(directory, verified_files(path))
        return OpenedBundle(bundle, check_trust(bundle, TrustStore(path).read(), trust))
    except FileNotFoundError as error:
        raise BundleError("%s is not a bundle: it has no %s" % (directory, MANIFEST)) from error
    except ContractError as error:
        raise BundleError("bundle %s: %s" % (directory, error)) from error
