"""The variables that a worker has."""

from __future__ import annotations

import os
from pathlib import Path

from device_agent.contract import quiet
from host.sandbox import places

# Of an environment that may hold secrets, what a library needs to be found and to speak.
_KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "TZ", "SSL_CERT_FILE")


def environment(scratch: Path) -> dict[str, str]:
    """Variables of a worker: its home, caches and temporary files are its scratch folder."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    own = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"), str(scratch))
    return {
        **kept,
        **own,
        **quiet.VARIABLES,
        "TMPDIR": str(scratch / "tmp"),
        "USER": "edgetlm",
        "LOGNAME": "edgetlm",
        "PYTHONPATH": str(places.root()),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "TVM_NUM_THREADS": "1",
    }
