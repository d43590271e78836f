#!/usr/bin/env python3
"""Write the SHA-256 of every wheel that a board may be sent: `.venv/bin/python scripts/lock_wheels.py`.

The versions are those of `host.payload.engines` and `host.payload.python`; change them there, then run this.
For each version of CPython that boards have, both processors and several generations of the C library, pip is
asked what it would take; nothing is downloaded. The answer goes to host/payload/pins.json.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

from lock_requirements import ARCHITECTURES, wheels_for
from lock_requirements import Platform as Asked

from host.errors import PayloadError
from host.payload import engines, python
from host.payload.wheels import Part, Platform

TARGET = Path(__file__).resolve().parent.parent / "host" / "payload" / "pins.json"
PYTHONS = tuple((3, minor) for minor in range(8, 15))
# JetPack 5, JetPack 6, today's; and the least that any board's wheels need.
GLIBC_MINORS = (28, 31, 35, 41)
HOST_PYTHON = sys.version_info[:2]


def main() -> int:
    """Ask for all of them and write the file."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for version in PYTHONS:
        for architecture in ARCHITECTURES:
            pins = _pins(architecture, version)
            for minor in GLIBC_MINORS:
                asked = Asked(architecture, ".".join(map(str, version)), minor)
                for configured in (True, False):
                    for wheel in wheels_for(sorted(pins), asked, configured):
                        found[wheel.pin][wheel.digest] = wheel.name
                print(f"{asked}: {len(pins)} pins", file=sys.stderr)
    ordered = {
        pin: dict(sorted(wheels.items(), key=lambda wheel: wheel[1])) for pin, wheels in sorted(found.items())
    }
    TARGET.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    return 0


def _pins(architecture: str, version: tuple[int, int]) -> set[str]:
    """What may be sent to boards of a kind, as far as it depends on their Python; the host's for the rest."""
    platform = Platform(architecture, version, (2, max(GLIBC_MINORS)))
    parts: list[Part] = []
    for engine in ("onnxruntime", "litert", "ncnn"):
        try:
            parts += engines.engine_parts(engine, platform)
        except PayloadError:
            continue
    parts += [part for part in python.runtime_parts() if version == HOST_PYTHON or not part.any_python]
    return {part.requirement for part in parts}


if __name__ == "__main__":
    sys.exit(main())
