"""What device_agent/contract has as data, as a header for C++: bounds, sizes of elements, hidden characters.

`python -m host.payload.contract_header` prints the header, for programs that are built elsewhere.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator

from device_agent.contract.limits import LIMITS
from device_agent.contract.text import is_hidden

HEADER = "contract/limits.h"
# Of the protocols that C++ speaks.
_SECTIONS = ("json", "text", "wire", "bundle")
_LAST_CHARACTER = 0x10FFFF


@functools.cache
def contract_header() -> str:
    """The content of the header."""
    lines = [
        "// Made of device_agent/contract by host/payload/contract_header.py.",
        "#pragma once",
        "",
        "#include <cstdint>",
        "",
        "namespace edgetlm {",
        "namespace limits {",
    ]
    for section in _SECTIONS:
        bounds = getattr(LIMITS, section)._asdict()
        lines += [f"namespace {section} {{"]
        lines += [f"inline constexpr int64_t {name} = INT64_C({value});" for name, value in bounds.items()]
        lines += [f"}}  // namespace {section}"]
    lines += [
        "}  // namespace limits",
        "",
        "struct ItemBytes {",
        "  const char* dtype;",
        "  int64_t bytes;",
        "};",
        "inline constexpr ItemBytes kItemBytes[] = {",
        *(f'    {{"{dtype}", {size}}},' for dtype, size in LIMITS.item_bytes.items()),
        "};",
        "",
        "// From the first to the last, in order.",
        "struct CharacterRange {",
        "  uint32_t first;",
        "  uint32_t last;",
        "};",
        *_table("kHiddenCharacters", is_hidden),
        *_table("kSpaceCharacters", str.isspace),
        "",
        "}  // namespace edgetlm",
        "",
    ]
    return "\n".join(lines)


def _table(name: str, wanted: Callable[[str], bool]) -> Iterator[str]:
    yield f"inline constexpr CharacterRange {name}[] = {{"
    first = None
    for code in range(_LAST_CHARACTER + 2):
        if code <= _LAST_CHARACTER and wanted(chr(code)):
            first = code if first is None else first
        elif first is not None:
            yield f"    {{0x{first:x}, 0x{code - 1:x}}},"
            first = None
    yield "};"


if __name__ == "__main__":
    sys.stdout.write(contract_header())
