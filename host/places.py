"""Where this product keeps a user's files, by the XDG base directory specification.

A relative path in one of its variables is to be ignored, says the specification.
"""

from __future__ import annotations

import getpass
import os
import stat
from contextlib import suppress
from pathlib import Path

from host.errors import UserError

_NAME = "edgetlm"


def cache_root() -> Path:
    """The cache of this user: `$XDG_CACHE_HOME/edgetlm`, else `~/.cache/edgetlm`; for this user alone.

    Compiled kernels, root file systems and wheels are kept in it, and what is kept there is executed.

    Raises:
        UserError: the folder is another user's, who could put code of his into it.
    """
    root = _root("XDG_CACHE_HOME", ".cache")
    # Where it cannot be made (full disk, read-only home), the writer raises the error.
    with suppress(OSError):
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = root.stat()
        if status.st_uid != os.geteuid():
            raise UserError(f"{root} belongs to another user: set XDG_CACHE_HOME to a folder of your own")
        if stat.S_IMODE(status.st_mode) & 0o077:
            root.chmod(0o700)
    return root


def zig_cache(folder: Path) -> Path:
    """The cache of C and C++ libraries that zig compiles: `$ZIG_GLOBAL_CACHE_DIR`, as zig does alone.

    Args:
        folder: whose `zig` it is where the variable is not set.
    """
    return Path(os.environ.get("ZIG_GLOBAL_CACHE_DIR") or folder / "zig")


def data_root() -> Path:
    """The folder of measurements and models: `$XDG_DATA_HOME/edgetlm`, else `~/.local/share/edgetlm`."""
    return _root("XDG_DATA_HOME", ".local/share")


def records_file() -> Path:
    """The user's records: `$XDG_DATA_HOME/edgetlm/records.sqlite`, else below `~/.local/share/edgetlm`."""
    return data_root() / "records.sqlite"


def config_root() -> Path:
    """The folder of the user's settings: `$XDG_CONFIG_HOME/edgetlm`, else `~/.config/edgetlm`."""
    return _root("XDG_CONFIG_HOME", ".config")


def _root(variable: str, default: str) -> Path:
    base = os.environ.get(variable, "")
    return (Path(base) if Path(base).is_absolute() else home() / default) / _NAME


def home() -> Path:
    """The user's own folder.

    Raises:
        UserError: there is none, as in a container whose user its system does not know.
    """
    try:
        return Path.home()
    except RuntimeError as error:
        raise UserError(
            f"user {os.geteuid()} has no home: set HOME to a folder that this user may write"
        ) from error


def user_name() -> str:
    """The user's name, or the number of one that the system does not know."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.geteuid())
