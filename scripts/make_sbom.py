#!/usr/bin/env python3
"""Write a bill of materials (CycloneDX 1.6, JSON): `make_sbom.py [-o FILE]`.

It has every pin of requirements/*.txt, the wheels of host/payload/pins.json, and what the native executor is
compiled from. `scope` says how a component is used: "required" by the host, "optional" with an extra or on a
board, "excluded" where it serves tests, documents or other environments alone. The properties
`edgetlm:pinned-by` and `edgetlm:sent-to-boards` say where each comes from. Licences are those that the
installed packages declare.

The same files give the same bytes where SOURCE_DATE_EPOCH is set; otherwise the time stamp is that of now.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import sys
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from lock_requirements import hashes_in
from packageurl import PackageURL
from packaging.requirements import Requirement

from host.payload.pins import pins as board_pins

ROOT = Path(__file__).resolve().parent.parent
VERSION = SchemaVersion.V1_6
# Files whose packages a host needs, and those that its extras add; the others serve tests and comparisons.
_REQUIRED = ("cpu.txt", "host.txt")
_OPTIONAL = ("cuda.txt", "postgres.txt", "torch-cuda.txt")
# What the native executor is compiled from (host.payload.native): sources and libraries in these packages.
_COMPILED = ("apache-tvm", "apache-tvm-ffi", "ziglang")
# Classifiers of packages that declare no expression, and the name that SPDX has for them.
_CLASSIFIED = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}


@dataclass
class Pin:
    """A package of one version.

    Attributes:
        name, version: of it.
        files: requirements files that pin it.
        hashes: SHA-256 of its files.
        on_boards: whether wheels or compiled parts of it are sent to boards.
    """

    name: str
    version: str
    files: set[str] = field(default_factory=set)
    hashes: set[str] = field(default_factory=set)
    on_boards: bool = False

    @property
    def scope(self) -> ComponentScope:
        """How it is used, by its most important use."""
        if self.files & set(_REQUIRED):
            return ComponentScope.REQUIRED
        if self.on_boards or self.files & set(_OPTIONAL):
            return ComponentScope.OPTIONAL
        return ComponentScope.EXCLUDED


def read_pins(folder: Path = ROOT / "requirements") -> list[Pin]:
    """Every package of every requirements file and of the boards' wheels, in order.

    Raises:
        ValueError: a line of a file is no pin.
        PayloadError: the list of the boards' wheels cannot be read.
    """
    found: dict[tuple[str, str], Pin] = {}

    def entry(requirement: str, hashes: Iterable[str]) -> Pin:
        name, _, version = requirement.partition("==")
        pin = found.setdefault((normalised(name), version), Pin(normalised(name), version))
        pin.hashes |= set(hashes)
        return pin

    for file in sorted(folder.glob("*.txt")):
        for requirement, hashes in hashes_in(file.read_text(encoding="utf-8")).items():
            entry(requirement, hashes).files.add(file.name)
    for requirement, wheels in board_pins().items():
        entry(requirement, wheels).on_boards = True
    for pin in found.values():
        pin.on_boards |= pin.name in _COMPILED
    return [found[key] for key in sorted(found)]


def normalised(name: str) -> str:
    """PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def make_bom(pins: Sequence[Pin], made_at: datetime) -> Bom:
    """The bill of materials of these packages.

    Args:
        pins: each name and version once.
        made_at: for the time stamp.
    """
    bom = Bom()
    product = importlib.metadata.metadata("edgetlm")
    root = Component(
        name="edgetlm",
        version=product["Version"],
        type=ComponentType.APPLICATION,
        bom_ref="edgetlm",
        licenses=[LicenseFactory().make_from_string("Apache-2.0")],
        purl=PackageURL("pypi", name="edgetlm", version=product["Version"]),
    )
    components = {(pin.name, pin.version): _component(pin) for pin in pins}
    bom.metadata.component, bom.metadata.timestamp = root, made_at
    bom.components = components.values()
    content = "\n".join(f"{pin.name}=={pin.version} {sorted(pin.hashes)}" for pin in pins)
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, content)
    required = {pin.name for pin in pins if pin.scope is ComponentScope.REQUIRED}
    first = [_installed(components, name) for name in _needs("edgetlm", ("host",)) if name in required]
    bom.register_dependency(root, [other for other in first if other is not None])
    for (name, version), component in components.items():
        if _installed_version(name) == version:
            needed = [_installed(components, other) for other in _needs(name, ())]
            bom.register_dependency(component, [other for other in needed if other is not None])
    return bom


def _component(pin: Pin) -> Component:
    properties = [Property(name="edgetlm:pinned-by", value=name) for name in sorted(pin.files)]
    if pin.on_boards:
        properties.append(Property(name="edgetlm:sent-to-boards", value="true"))
    purl = PackageURL("pypi", name=pin.name, version=pin.version)
    return Component(
        name=pin.name,
        version=pin.version,
        type=ComponentType.LIBRARY,
        bom_ref=purl.to_string(),
        scope=pin.scope,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in sorted(pin.hashes)],
        licenses=_licences(pin),
        purl=purl,
        properties=properties,
    )


def _licences(pin: Pin) -> list[License]:
    """What the installed package declares; nothing where another version is installed, or none."""
    if _installed_version(pin.name) != pin.version:
        return []
    metadata = importlib.metadata.metadata(pin.name)
    classifiers = [text.rpartition(" :: ") for text in metadata.get_all("Classifier") or ()]
    classified = {
        _CLASSIFIED.get(last, last) for first, _, last in classifiers if first.startswith("License")
    }
    expression, *_ = metadata.get_all("License-Expression") or [""]
    plain, *_ = metadata.get_all("License") or [""]
    said = expression or " AND ".join(sorted(classified - {"OSI Approved"})) or plain.strip()
    # An old field has the whole text of a licence with some packages.
    return [LicenseFactory().make_from_string(said)] if said and "\n" not in said else []


def _installed_version(name: str) -> str:
    """The version of an installed package without its maker's part (`+cpu`); "" if it is not installed."""
    try:
        return importlib.metadata.version(name).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return ""


def _installed(components: dict[tuple[str, str], Component], name: str) -> Component | None:
    return components.get((name, _installed_version(name)))


def _needs(name: str, extras: Sequence[str]) -> list[str]:
    """Packages that an installed one needs here, with the packages of extras that it names."""
    found: dict[str, None] = {}
    left = [(name, extra) for extra in ("", *extras)]
    seen = set(left)
    while left:
        package, extra = left.pop()
        for text in importlib.metadata.requires(package) or ():
            wanted = Requirement(text)
            if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
                continue
            if normalised(wanted.name) != name:
                found[normalised(wanted.name)] = None
            more = [(normalised(wanted.name), one) for one in wanted.extras]
            more = [one for one in more if one not in seen and _installed_version(one[0])]
            seen |= set(more)
            left += more
    return list(found)


def text_of(bom: Bom) -> str:
    """The file.

    Raises:
        ValueError: it does not validate against CycloneDX's schema.
    """
    text = make_outputter(bom, OutputFormat.JSON, VERSION).output_as_string(indent=1)
    error = JsonStrictValidator(VERSION).validate_str(text)
    if error is not None:
        raise ValueError(f"the bill of materials does not validate: {error}")
    return text + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write the file."""
    parser = argparse.ArgumentParser(description="Write a bill of materials (CycloneDX, JSON).")
    parser.add_argument("-o", "--output", type=Path, default=Path("edgetlm-out/edgetlm.cdx.json"))
    output = parser.parse_args(arguments).output
    moment = os.environ.get("SOURCE_DATE_EPOCH")
    made_at = datetime.fromtimestamp(int(moment), UTC) if moment else datetime.now(UTC)
    pins = read_pins()
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text_of(make_bom(pins, made_at)), encoding="utf-8")
    print(f"{output}: {len(pins)} components")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
