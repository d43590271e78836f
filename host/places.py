"""Where this product keeps a user's files, by the XDG base directory specification.

A relative path in one of its variables is to be ignored, says the specification.
"""

from __future__ import annotations

import os
from pathlib import Path

_NAME = "edgetlm"


def cache_root() -> Path:
    """What can be made again: `$XDG_CACHE_HOME/edgetlm`, else `~/.cache/edgetlm`."""
    return _root("XDG_CACHE_HOME", ".cache")


def data_root() -> Path:
    """What was measured and learned: `$XDG_DATA_HOME/edgetlm`, else `~/.local/share/edgetlm`."""
    return _root("XDG_DATA_HOME", ".local/share")


def config_root() -> Path:
    """What the user set up: `$XDG_CONFIG_HOME/edgetlm`, else `~/.config/edgetlm`."""
    return _root("XDG_CONFIG_HOME", ".config")


def _root(variable: str, default: str) -> Path:
    base = os.environ.get(variable, "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / default) / _NAME
