"""Licences and notices of what a board is sent, out of the packages that it was made of.

Wheels bring theirs (`is_licence`). What has none of its own is added here: the native executor, which is
compiled, and wheels whose makers left the text out.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Mapping
from pathlib import Path

from host.errors import PayloadError

# Folder in a payload for the texts that are added.
FOLDER = "licences"
_LICENCE = re.compile(r"(^|/)(LICEN[CS]E|NOTICE|COPYING|COPYRIGHT|ThirdPartyNotices)[^/]*$")
_SOURCE = (".py", ".pyi", ".so", ".h")
# Of each package that the native executor is compiled from, the files by the end of their names: TVM's
# runtime and interface; the C++ library, unwinder and start files that zig links, and zig's own library.
_NATIVE = {
    "apache-tvm": ("tvm/LICENSE", "tvm/NOTICE"),
    "apache-tvm-ffi": ("licenses/LICENSE", "licenses/NOTICE"),
    "ziglang": (
        "licenses/ziglang/LICENSE",
        "lib/libcxx/LICENSE.TXT",
        "lib/libcxxabi/LICENSE.TXT",
        "lib/libunwind/LICENSE.TXT",
        "libc/glibc/LICENSES",
    ),
}
_ZIG = {"ziglang": ("licenses/ziglang/LICENSE",)}
# Wheels without a text, and the package of the same project that has it.
_ELSEWHERE = {"ai-edge-litert==2.1.0": "ai-edge-litert", "tflite-runtime==2.13.0": "ai-edge-litert"}


def is_licence(name: str) -> bool:
    """Whether a file of a wheel is a licence or a notice, which go wherever the wheel's libraries go."""
    return bool(_LICENCE.search(name)) and not name.endswith(_SOURCE)


def native_licences() -> dict[str, Path]:
    """The texts of what is in the native executor, by their path in its payload.

    Raises:
        PayloadError: a package that it is compiled from is not installed, or lacks its text.
    """
    return _texts(_NATIVE)


def cuda_licences() -> dict[str, Path]:
    """The texts of what zig links into our library for CUDA.

    Raises:
        PayloadError: see `native_licences`.
    """
    return _texts(_ZIG)


def missing_licences(requirement: str) -> dict[str, Path]:
    """The texts that a wheel lacks; nothing for wheels that bring theirs.

    Args:
        requirement: name and exact version.

    Raises:
        PayloadError: see `native_licences`.
    """
    project = _ELSEWHERE.get(requirement)
    if project is None:
        return {}
    [text] = _texts({project: ("licenses/LICENSE",)}).values()
    return {f"{FOLDER}/{requirement.replace('==', '-')}/LICENSE": text}


def _texts(wanted: Mapping[str, tuple[str, ...]]) -> dict[str, Path]:
    found = {}
    for package, names in wanted.items():
        try:
            distribution = importlib.metadata.distribution(package)
        except importlib.metadata.PackageNotFoundError as error:
            raise PayloadError(f"{package} is not installed: install edgetlm[host]") from error
        files = [file for file in distribution.files or () if is_licence(file.as_posix())]
        for name in names:
            file = next((file for file in files if file.as_posix().endswith(name)), None)
            if file is None or not (path := Path(str(distribution.locate_file(file)))).is_file():
                raise PayloadError(f"{package} lacks its licence ({name}): install it again")
            place = re.sub(r"^.*(licenses|ziglang/lib|tvm)/", "", file.as_posix())
            found[f"{FOLDER}/{package}-{distribution.version}/{place}"] = path
    return found
