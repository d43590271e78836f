"""Versions of what makes a bundle."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version

_VERSIONED = ("edgetlm", "apache-tvm", "apache-tvm-ffi", "onnxruntime", "ai-edge-litert", "torch", "numpy")


def versions() -> dict[str, str]:
    """Versions on the host, by package."""
    found = {"python": sys.version.split()[0]}
    for package in _VERSIONED:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
