"""Versions of installed packages: of what makes a bundle, and of those that do not fit this one."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, packages_distributions, requires, version
from types import ModuleType

from device_agent.contract.text import printable

_VERSIONED = ("edgetlm", "apache-tvm", "apache-tvm-ffi", "onnxruntime", "ai-edge-litert", "torch", "numpy")
_OURS = "edgetlm"
# A name and its specifier, as "numpy==2.4.6" or "protobuf >=4.25.1".
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*\(?([^;()]*)\)?")
_SHOWN_CHARACTERS = 200


def versions() -> dict[str, str]:
    """Versions on the host, by package."""
    found = {"python": sys.version.split()[0]}
    for package in _VERSIONED:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def of_a_package(error: BaseException) -> bool:
    """Whether a package may be the reason: an import failed, or a module lacks a name."""
    if isinstance(error, AttributeError):
        return isinstance(error.obj, ModuleType)
    return isinstance(error, ImportError)


def wrong_version(error: BaseException) -> str | None:
    """One line about the installed package of another version that an error comes from; None for others.

    The module that lacks a name is looked at first, then those whose code ran, last first. A package that
    edgetlm requires has the wrong version if it is not the required one. Of one that only those require, the
    line says what they require.

    Args:
        error: with its traceback.
    """
    needed = _requirements(_OURS)
    owners = packages_distributions()
    for module in dict.fromkeys(_modules(error)):
        for package in dict.fromkeys(owners.get(module, ())):
            line = _of_ours(package, needed) or _of_others(package, module, needed, error)
            if line is not None:
                return f"{line} ({printable(error, _SHOWN_CHARACTERS)})"
    return None


def _of_ours(package: str, needed: dict[str, str]) -> str | None:
    wanted = needed.get(_normal(package), "").removeprefix("==")
    found = version(package)
    # What follows a plus is the variant of a build, as of PyTorch for processors.
    if not wanted or found.split("+")[0] == wanted:
        return None
    return (
        f"{package} {printable(found)} is installed and does not fit, {_OURS} needs {package} {wanted}: "
        f"pip install '{package}=={wanted}'"
    )


def _of_others(package: str, module: str, needed: dict[str, str], error: BaseException) -> str | None:
    """Of a package that lacks a name, and that our requirements require in their turn."""
    if _normal(package) in needed or module != next(_modules(error)):
        return None
    for other in needed:
        wanted = _requirements(other).get(_normal(package))
        if wanted:
            return (
                f"{package} {printable(version(package))} is installed and does not fit, {other} needs "
                f"{package}{wanted}: pip install --force-reinstall '{package}{wanted}'"
            )
    return None


def _modules(error: BaseException | None) -> Iterator[str]:
    """Packages of modules that an error concerns, by their names in Python."""
    seen: set[int] = set()
    # Errors may be causes of each other.
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        name = getattr(error.obj, "__name__", None) if isinstance(error, AttributeError) else None
        if isinstance(error, ImportError):
            name = error.name
        if isinstance(name, str):
            yield name.partition(".")[0]
        ran, trace = [], error.__traceback__
        while trace is not None:
            ran.append(str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0])
            trace = trace.tb_next
        yield from reversed(ran)
        error = error.__cause__ or error.__context__


def _requirements(package: str) -> dict[str, str]:
    """The specifiers of what a package requires, by normal name; empty if it is not installed.

    What it requires for an extra counts for this package alone, of which the extras are what is installed.
    """
    try:
        lines = requires(package) or []
    except PackageNotFoundError:
        return {}
    counted = [line for line in lines if package == _OURS or "extra" not in line.partition(";")[2]]
    matches = filter(None, map(_REQUIREMENT.match, counted))
    return {_normal(match[1]): match[2].strip() for match in matches}


def _normal(name: str) -> str:
    """The name of a package as all spellings of it are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()
