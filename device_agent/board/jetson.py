"""The JetPack of a Jetson: its Linux release and the CUDA version that the driver loads.

Sources: `/etc/nv_tegra_release` (NVIDIA Jetson Linux Developer Guide, "Flashing Support": the first line is
`# R35 (release), REVISION: 4.1, GCID: ...`); `/usr/local/cuda/version.json` (CUDA Installation Guide for
Linux: `{"cuda": {"name": "CUDA SDK", "version": "11.4.19"}, ...}`). A system without the tool kit still has
the driver. The driver's CUDA version then follows from the release (release notes of Jetson Linux).
"""

from __future__ import annotations

import json
import os
import re
import shutil
from typing import Dict, Optional

_RELEASE = re.compile(r"R(\d+) \(release\), REVISION: ([\d.]+)")
# The first Jetson Linux release of each CUDA version: JetPack 4, 5, 6.0, 6.1 and 7.
_CUDA = (((38, 0), "13.0"), ((36, 4), "12.6"), ((36, 0), "12.2"), ((34, 0), "11.4"), ((32, 0), "10.2"))

# Where JetPack has the programs of TensorRT; the folder is on nobody's PATH.
_SAMPLES = "/usr/src/tensorrt/bin"


def trtexec() -> Optional[str]:
    """The path of TensorRT's program, which JetPack installs beside its samples; None where there is none."""
    return shutil.which("trtexec", path=os.pathsep.join((os.environ.get("PATH", ""), _SAMPLES)))


def software(root: str = "/") -> Dict[str, str]:
    """Versions by name: `l4t` (Jetson Linux) and `cuda`. A version that is not found is left out.

    Args:
        root: prefix of all system paths.
    """
    found: Dict[str, str] = {}
    release = _RELEASE.search(_read(os.path.join(root, "etc/nv_tegra_release")))
    if release:
        found["l4t"] = "%s.%s" % (release.group(1), release.group(2))
    cuda = _tool_kit(_read(os.path.join(root, "usr/local/cuda/version.json")))
    if not cuda and release:
        version = (int(release.group(1)), int(release.group(2).split(".")[0] or 0))
        cuda = next((name for first, name in _CUDA if version >= first), "")
    if cuda:
        found["cuda"] = cuda
    return found


def _tool_kit(text: str) -> str:
    """The version in the tool kit's file; "" if there is no such file or the file names no version."""
    try:
        version = json.loads(text)["cuda"]["version"]
    except (ValueError, KeyError, TypeError):
        return ""
    return str(version)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return ""
