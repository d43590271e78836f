"""A disk that is full, as one clear error."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from host.errors import DeviceFull

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a full disk into one clear error.

    Raises:
        DeviceFull: no space left where `path` is to be written.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise DeviceFull(f"no space left while writing {path}: free some and run again") from error
        raise
